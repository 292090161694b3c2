"""Azure's public inference traces of 2023 and 2024: TIMESTAMP,ContextTokens,GeneratedTokens."""

from __future__ import annotations

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.table import Column, Kind, read_table

_NAMES = {"timestamp", "contexttokens", "generatedtokens"}


def _matches(head: Head) -> bool:
    return _NAMES <= set(head.columns)


def _read(file: TraceFile) -> Columns:
    table = read_table(
        file,
        [
            Column("TIMESTAMP", Kind.DATETIME),
            Column("ContextTokens", Kind.TOKENS),
            Column("GeneratedTokens", Kind.TOKENS),
        ],
    )
    return Columns(table["timestamp"], table["contexttokens"], table["generatedtokens"])


AZURE = TraceFormat("azure", "Azure LLM inference trace CSV (2023, 2024)", _matches, _read)
