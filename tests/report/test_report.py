"""The report: every kind of study, hostile texts, sizes, and documents that hold together."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_studies import HOSTILE, make_study

from tuner.report.files import render_report, write_report
from tuner.report.page.html import style
from tuner.study import KeptStudy, read_study

VOID = {"meta", "link", "br", "input", "img"}


class Checker(HTMLParser):
    """Every element closes in order; collects what the tests ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.seen if name == tag]


def parsed(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeptStudy]:
    root = tmp_path_factory.mktemp("studies")
    cases = {
        "tuned": {"invalid": "the client was the bottleneck"},
        "old": {"evidence": False},
        "default": {"kinds": "oosso", "finish": "default"},
        "none": {"kinds": "ccrcs", "finish": "none"},
        "interrupted": {"kinds": "okkci", "finish": None},
        "empty": {"kinds": "", "finish": None},
        "hostile": {"hostile": HOSTILE * 4},
    }
    return {name: read_study(make_study(root, name, **options)) for name, options in cases.items()}


CASES = ("tuned", "old", "default", "none", "interrupted", "empty", "hostile")


@pytest.mark.parametrize("case", CASES)
def test_every_study_makes_a_sound_page_that_fetches_and_runs_nothing(made, case: str) -> None:
    html = render_report(made[case], "html")
    page = parsed(html)
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "img", "iframe", "object", "form"}
    links = [a.get("href") or "" for tag, a in page.seen if tag in ("a", "link")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not any(name.startswith("on") for _, attrs in page.seen for name in attrs)
    assert "default-src 'none'" in html
    ids = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


@pytest.mark.parametrize("case", CASES)
def test_a_screen_reader_finds_its_way(made, case: str) -> None:
    page = parsed(render_report(made[case], "html"))
    assert page.all("html")[0]["lang"] == "en" and len(page.all("h1")) == 1 and len(page.all("main")) == 1
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in attrs for attrs in page.all("th"))
    pictures = page.all("svg")
    assert all(attrs["role"] == "img" and attrs.get("aria-labelledby") for attrs in pictures)
    assert len(page.all("desc")) == len(pictures)
    for attrs in page.all("div"):
        if attrs.get("class") == "scroll":
            assert attrs["tabindex"] == "0" and attrs["role"] == "region"


def test_what_people_look_for_is_there(made) -> None:
    text = "".join(parsed(render_report(made["tuned"], "html")).text)
    for words in (
        "Recommended: 8.10 requests/s within the SLO, +16% over vLLM's defaults",
        "95% interval +8% to +31%",
        "vllm serve kimi-k2.6-awq --enable-prefix-caching --max-num-seqs 77",
        "Default against tuned",
        "P99 of TTFT at that load",
        "P99 of TPOT at that load",
        "cost of 1,000 requests",
        "Trials by outcome",
        "Where the engine time went",
        "warm-up",
        "Just as good",
        "Small servers or large ones",
        "SLO 0.5x",
        "How the simulator did",
        "INVALID replays",
        "the client was the bottleneck",
        "kimi-tune --gpu A100-80G --slo-p99 30s",
        "What could not start, and why",
        "no room for the KV cache",
        "lower max-model-len",
        "SIMULATED",
    ):
        assert words in text, words


def test_an_interrupted_study_says_how_far_it_came(made) -> None:
    text = "".join(parsed(render_report(made["interrupted"], "html")).text)
    assert "Not finished: the best so far carries 7.72 requests/s (trial 3)" in text
    assert "goes on where it stopped" in text and "interrupted" in text


def test_predictions_kept_with_the_trials_are_told_where_the_profile_has_none(made) -> None:
    text = render_report(made["interrupted"], "md")
    assert "The predictions were off by 10.0%" in text and "trial 2 | 1 |" in text


def test_hostile_texts_stay_texts(made) -> None:
    html = render_report(made["hostile"], "html")
    assert "<script" not in html and "&lt;script&gt;" in html
    markdown = render_report(made["hostile"], "md")
    outside = re.sub(r"(?ms)^(`{3,})sh\n.*?^\1$", "", markdown)
    outside = re.sub(r"(`+)[^\n]*?[^`]\1(?!`)", "", outside)
    assert not re.search(r"(?<!\\)<script", outside) and not re.search(r"(?<!\\)\[a(?<!\\)\]\(", outside)
    rows = list(csv.reader(io.StringIO(render_report(made["hostile"], "csv"))))
    assert len({len(row) for row in rows}) == 1
    assert not any(cell[:1] in "=+@" for row in rows[1:] for cell in row if cell)


def test_tables_of_the_markdown_have_the_same_cells_in_every_row(made) -> None:
    for study in made.values():
        widths: list[int] = []
        for line in [*render_report(study, "md").splitlines(), ""]:
            if line.startswith("|"):
                widths.append(len(re.findall(r"(?<!\\)\|", re.sub(r"(`+)[^\n]*?[^`]\1(?!`)", "", line))))
            else:
                assert len(set(widths)) <= 1, line
                widths = []


def test_csv_and_json_hold_every_trial(made) -> None:
    study = made["tuned"]
    rows = list(csv.DictReader(io.StringIO(render_report(study, "csv"))))
    assert len(rows) == len(study.trials)
    assert rows[3]["flag.max-num-seqs"] == str(study.trials[3].config["max-num-seqs"])
    assert {row["feasible"] for row in rows} == {"True", "False"}
    value = json.loads(render_report(study, "json"))
    assert len(value["trials"]) == len(study.trials) and value["result"]["recommendation"] == "tuned"
    assert value["trials"][0]["replays_by_load"][0]["ttft_s"]["p99"] > 0


def test_five_hundred_trials_stay_small(made, tmp_path: Path) -> None:
    study = made["tuned"]
    many = tuple(replace(study.trials[n % len(study.trials)], number=n) for n in range(500))
    (html,) = write_report(replace(study, trials=many), ["html"], tmp_path)
    assert html.stat().st_size < 3_000_000
    assert "All 500 trials" in html.read_text()


@pytest.mark.parametrize("palette", ["light", "dark"])
def test_contrast_is_enough_to_read(palette: str) -> None:
    roots = re.findall(r":root\{([^}]*)\}", style())
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", roots[0] if palette == "light" else roots[1]))
    for ink in ("ink", "muted", "link", "good", "bad", "warn", "default", "tuned", "other"):
        for ground in ("bg", "panel"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert contrast(colours["ink"], colours["strong"]) >= 7


def contrast(one: str, other: str) -> float:
    """Contrast of two colours (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
