"""A page as one HTML file: nothing is fetched, nothing runs, and whatever came from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files

from tuner.report.page.blocks import (
    Block,
    Code,
    Column,
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
)
from tuner.report.page.svg import chart_svg

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@cache
def style() -> str:
    """The style sheet, one for screens in light and dark, phones, and print."""
    return files("tuner.report.page").joinpath("report.css").read_text(encoding="utf-8")


def page_html(page: Page) -> str:
    """The whole document."""
    contents = "".join(f'<li><a href="#{s.id}">{escape(s.title)}</a></li>' for s in page.sections)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
        f"<title>{escape(page.title)}</title><style>{style()}</style></head><body>",
        '<a class="skip" href="#main">Skip to the report</a>',
        f'<header><p class="kicker">{escape(page.kicker)}</p><h1>{escape(page.headline)}</h1></header>',
        '<main id="main">',
        *_blocks(page.summary, "summary"),
        f'<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>',
        *(_section(section) for section in page.sections),
        f"</main><footer><p>{escape(page.footer)}</p></footer></body></html>\n",
    ]
    return "\n".join(parts)


def _section(section: Section) -> str:
    inner = "\n".join(_blocks(section.blocks, section.id))
    return (
        f'<section id="{section.id}" aria-labelledby="{section.id}-h">'
        f'<h2 id="{section.id}-h">{escape(section.title)}</h2>\n{inner}</section>'
    )


def _blocks(blocks: Iterable[Block], where: str) -> Iterator[str]:
    for index, block in enumerate(blocks):
        yield _block(block, f"{where}-{index}")


def _block(block: Block, id_: str) -> str:
    match block:
        case Text(words, tone):
            kind = f' class="remark {tone}"' if tone else ""
            return f"<p{kind}>{_words(words)}</p>"
        case Code(text, caption):
            said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
            name = escape(caption or "Command")
            return (
                f'<figure class="code">{said}'
                f'<pre tabindex="0" role="region" aria-label="{name}"><code>{escape(text)}</code></pre>'
                "</figure>"
            )
        case Figures(items):
            cells = "".join(
                f'<div class="{item.tone}"><dt>{escape(item.name)}</dt><dd>{escape(item.value)}'
                + (f"<small>{escape(item.remark)}</small>" if item.remark else "")
                + "</dd></div>"
                for item in items
            )
            return f'<dl class="figures">{cells}</dl>'
        case Items(items):
            return "<ul>" + "".join(f"<li>{_words(item)}</li>" for item in items) + "</ul>"
        case Picture(chart):
            return (
                f'<figure class="picture"><figcaption>{escape(chart.title)}</figcaption>'
                f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(chart.title)}">'
                f"{chart_svg(chart)}</div></figure>"
            )
        case Fold(summary, inner):
            body = "\n".join(_blocks(inner, id_))
            return f"<details><summary>{escape(summary)}</summary>\n{body}</details>"
        case Table():
            return _table(block, id_)


def _table(table: Table, id_: str) -> str:
    head = "".join(f'<th scope="col"{_side(column)}>{escape(column.name)}</th>' for column in table.columns)
    rows = []
    for number, row in enumerate(table.rows):
        strong = ' class="strong"' if number in table.strong else ""
        cells = [f'<th scope="row"{_side(table.columns[0])}>{_words(row[0])}</th>']
        cells += [
            f"<td{_side(c)}>{_words(cell)}</td>" for c, cell in zip(table.columns[1:], row[1:], strict=True)
        ]
        rows.append(f"<tr{strong}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{id_}-c"><table>'
        f'<caption id="{id_}-c">{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


def _side(column: Column) -> str:
    return ' class="n"' if column.numeric else ""


def _words(words: Words) -> str:
    if isinstance(words, str):
        return escape(words)
    if isinstance(words, Mono):
        return f"<code>{escape(words.text)}</code>"
    return "".join(_words(part) for part in words)
