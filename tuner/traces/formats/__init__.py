"""The trace formats that are known, in the order in which they are tried; a file's content chooses."""

from __future__ import annotations

import orjson

from tuner.errors import BadRequest
from tuner.traces.files import TraceFile
from tuner.traces.formats.azure import AZURE
from tuner.traces.formats.bailian import BAILIAN
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.burstgpt import BURSTGPT
from tuner.traces.formats.mooncake import MOONCAKE
from tuner.traces.formats.openai_log import OPENAI_LOG
from tuner.traces.formats.own import OWN
from tuner.traces.formats.ragpulse import RAGPULSE
from tuner.traces.formats.splitwise import SPLITWISE_SIM, VIDUR
from tuner.traces.formats.table import column_names

FORMATS: tuple[TraceFormat, ...] = (
    OWN,
    BAILIAN,
    RAGPULSE,
    MOONCAKE,
    OPENAI_LOG,
    AZURE,
    BURSTGPT,
    VIDUR,
    SPLITWISE_SIM,
)


def find_format(file: TraceFile) -> TraceFormat:
    """The format of a file, by its first line.

    Raises:
        BadRequest: empty, unreadable, or of no format known.
    """
    first = next(file.lines(), None)
    if first is None:
        raise BadRequest(f"{file.path.name}: is empty", "give a trace with requests")
    line, raw = first
    head = head_of(raw)
    for known in FORMATS:
        if known.matches(head):
            return known
    shown = head.text if len(head.text) <= 60 else head.text[:57] + "..."
    titles = ", ".join(known.title for known in FORMATS)
    raise BadRequest(
        f"{file.path.name}, line {line}: no trace format begins with {shown!r}", f"known are {titles}"
    )


def head_of(raw: bytes) -> Head:
    """The head of a file whose first line is `raw`."""
    text = raw.decode("utf-8", "replace")
    if raw.startswith(b"{"):
        try:
            row = orjson.loads(raw)
        except orjson.JSONDecodeError:
            row = None
        return Head(text, row if isinstance(row, dict) else None, ())
    return Head(text, None, column_names(text))


__all__ = ["FORMATS", "Columns", "Head", "TraceFormat", "find_format", "head_of"]
