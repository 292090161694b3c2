"""CSV of the simulators: Vidur's `arrived_at,num_prefill_tokens,num_decode_tokens`, and splitwise-sim's
`request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size`; both in
seconds.
"""

from __future__ import annotations

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.table import Column, Kind, read_table


def _format(name: str, title: str, time: str, prompt: str, answer: str) -> TraceFormat:
    def matches(head: Head) -> bool:
        return {time, prompt, answer} <= set(head.columns)

    def read(file: TraceFile) -> Columns:
        table = read_table(
            file, [Column(time, Kind.SECONDS), Column(prompt, Kind.TOKENS), Column(answer, Kind.TOKENS)]
        )
        return Columns(table[time], table[prompt], table[answer])

    return TraceFormat(name, title, matches, read)


VIDUR = _format("vidur", "Vidur CSV", "arrived_at", "num_prefill_tokens", "num_decode_tokens")
SPLITWISE_SIM = _format(
    "splitwise-sim", "splitwise-sim CSV", "arrival_timestamp", "prompt_size", "token_size"
)
