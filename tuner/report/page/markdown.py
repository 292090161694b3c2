"""A page as Markdown: the same sections, tables as pipes; what came from outside cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tuner.report.page.blocks import (
    Block,
    Code,
    Figures,
    Fold,
    Items,
    Mono,
    Page,
    Picture,
    Section,
    Table,
    Text,
    Words,
    plain,
)
from tuner.report.page.charts import BarChart, Chart

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def page_markdown(page: Page) -> str:
    """The whole document."""
    lines = [f"# {_text(page.headline)}", "", _text(page.kicker), "", *_blocks(page.summary)]
    for section in page.sections:
        lines += section_lines(section)
    return "\n".join([*lines, "---", "", _text(page.footer), ""])


def section_lines(section: Section, level: int = 2) -> list[str]:
    """A section under its heading."""
    return [f"{'#' * level} {_text(section.title)}", "", *_blocks(section.blocks)]


def blocks_markdown(blocks: Iterable[Block]) -> str:
    """Blocks without a heading."""
    return "\n".join(_blocks(blocks))


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Text(words, tone):
            yield from (f"{'> ' if tone else ''}{_words(words)}", "")
        case Code(text, caption):
            if caption:
                yield from (_text(caption), "")
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            yield from (f"{fence}sh", *text.splitlines(), fence, "")
        case Figures(items):
            for item in items:
                remark = f" ({_text(item.remark)})" if item.remark else ""
                yield f"- {_text(item.name)}: **{_text(item.value)}**{remark}"
            yield ""
        case Items(items):
            yield from (f"- {_words(item)}" for item in items)
            yield ""
        case Picture(chart):
            yield from _chart(chart)
        case Fold(_, inner):
            yield from _blocks(inner)
        case Table():
            yield from _table(block)


def _table(table: Table) -> Iterator[str]:
    yield from (f"*{_text(table.caption)}*", "")
    yield "| " + " | ".join(_text(column.name) or " " for column in table.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_words(cell) or " " for cell in row) + " |"
    yield ""


def _chart(chart: Chart) -> Iterator[str]:
    """What a picture shows, in words."""
    yield from (f"{_text(chart.title)}: {_text(chart.description)}", "")
    if isinstance(chart, BarChart):
        yield from (f"- {_text(bar.name)}: {_text(bar.text)}" for bar in chart.bars)
        yield ""


def _words(words: Words) -> str:
    if isinstance(words, str):
        return _text(words)
    if isinstance(words, Mono):
        return _mono(words.text)
    return "".join(_words(part) for part in words)


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()) if "\n" in text else text)


def _mono(text: str) -> str:
    """A code span; backticks inside need a longer fence, and a pipe would end a table's cell."""
    text = " ".join(text.split()).replace("|", "¦")
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


__all__ = ["blocks_markdown", "page_markdown", "plain", "section_lines"]
