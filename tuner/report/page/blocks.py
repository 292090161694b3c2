"""What a report is made of before it becomes HTML or Markdown: sections of texts, tables, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.report.page.charts import Chart


@dataclass(frozen=True, slots=True)
class Mono:
    """A flag, a command or a name as a machine reads it."""

    text: str


Words = str | Mono | Sequence[str | Mono]
"""Running text; `Mono` parts are set apart."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. `tone` is "", "good", "bad" or "warn": a remark that stands out."""

    words: Words
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Something to copy, said what it is by `caption`."""

    text: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the summary: the value in large, its name, and a remark."""

    name: str
    value: str
    remark: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that people look at first."""

    items: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head; figures stand at the right, texts at the left."""

    name: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row names it. `strong` are the rows that stand out."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Words, ...], ...]
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart."""

    chart: Chart


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown on request (always in print and in Markdown)."""

    summary: str
    blocks: tuple[Block, ...]


Block = Text | Code | Figures | Table | Items | Picture | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report under its own heading."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The report: `title` names the document, `headline` is what to do, `kicker` what it is about."""

    title: str
    kicker: str
    headline: str
    summary: tuple[Block, ...]
    sections: tuple[Section, ...] = field(default_factory=tuple)
    footer: str = ""


def plain(words: Words) -> str:
    """The same words without marks."""
    if isinstance(words, str):
        return words
    if isinstance(words, Mono):
        return words.text
    return "".join(plain(part) for part in words)
