"""Reports as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.masking import mask
from tuner.report.content.page import study_page
from tuner.report.page.html import page_html
from tuner.report.page.markdown import page_markdown
from tuner.report.rows import study_json, trials_csv
from tuner.study.kept import KeptStudy

FORMATS: dict[str, tuple[str, Callable[[KeptStudy], str]]] = {
    "html": ("report.html", lambda study: page_html(study_page(study))),
    "md": ("report.md", lambda study: page_markdown(study_page(study))),
    "csv": ("trials.csv", trials_csv),
    "json": ("report.json", study_json),
}
"""Each format's file name and who writes it."""


def render_report(study: KeptStudy, format: str) -> str:
    """The report in one format, without secrets."""
    return mask(FORMATS[format][1](study))


def write_report(study: KeptStudy, formats: Sequence[str], folder: Path | None = None) -> list[Path]:
    """Write the report in some formats into a folder (default: the study's); returns the files."""
    where = folder if folder is not None else study.place.folder
    where.mkdir(parents=True, exist_ok=True)
    written = []
    for name in formats:
        path = where / FORMATS[name][0]
        path.write_text(render_report(study, name), encoding="utf-8")
        written.append(path)
    return written
