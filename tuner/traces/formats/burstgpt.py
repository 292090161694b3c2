"""BurstGPT's CSV, by column name: v1 and v2 `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log
Type`, v3 with `Session ID,Elapsed time` after Timestamp. No response tokens means that the request failed.
"""

from __future__ import annotations

import numpy as np

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import FAILED, Columns, Head, TraceFormat
from tuner.traces.formats.table import Column, Kind, column_names, read_table

_NAMES = {"timestamp", "request tokens", "response tokens"}
_SESSION = "session id"


def _matches(head: Head) -> bool:
    return _NAMES <= set(head.columns)


def _read(file: TraceFile) -> Columns:
    wanted = [
        Column("Timestamp", Kind.SECONDS),
        Column("Request tokens", Kind.TOKENS),
        Column("Response tokens", Kind.TOKENS),
    ]
    _, first = next(file.lines())
    if _SESSION in column_names(first.decode("utf-8", "replace")):
        wanted.append(Column("Session ID", Kind.LABEL))
    table = read_table(file, wanted)
    answered = table["response tokens"] > 0
    failed = len(answered) - int(np.count_nonzero(answered))
    kept = {name: column[answered] for name, column in table.items()}
    columns = Columns(kept["timestamp"], kept["request tokens"], kept["response tokens"])
    if failed:
        columns.left_out[FAILED] = failed
    if _SESSION in kept:
        session = kept[_SESSION]
        alone = session < 0
        session[alone] = int(session.max(initial=0)) + 1 + np.arange(int(np.count_nonzero(alone)))
        columns.session = session
    return columns


BURSTGPT = TraceFormat("burstgpt", "BurstGPT CSV (v1 to v3)", _matches, _read)
