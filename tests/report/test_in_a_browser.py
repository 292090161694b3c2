"""Report and dashboard as a person sees them, in Chromium: `apt-get install chromium`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import make_server

import pytest
from browser import Tab, browser_tab, find_browser
from made_studies import HOSTILE, make_study

from tuner.report.files import write_report
from tuner.study import read_study

BROWSER = find_browser()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert BROWSER is not None
    with browser_tab(BROWSER) as page:
        yield page


@pytest.mark.parametrize("case", ["tuned", "hostile"])
def test_the_report_is_whole_at_every_size_and_in_both_palettes(tab: Tab, tmp_path: Path, case: str) -> None:
    place = make_study(tmp_path, case, hostile=HOSTILE * 5 if case == "hostile" else "")
    (file,) = write_report(read_study(place), ["html"])
    tab.requests.clear()
    tab.console.clear()
    grounds = set()
    for width in (1280, 400):
        for dark in (False, True):
            tab.look(width, dark=dark)
            tab.open(file.as_uri())
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), (width, dark)
            grounds.add(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2, "light and dark differ"
    assert set(tab.requests) == {file.as_uri()} and tab.console == []
    names = tab.tree()
    assert ("main", "") in names and any(role == "image" and "P99" in name for role, name in names)
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert tab.run("document.activeElement.className") == "skip"


def test_in_print_everything_is_unfolded(tab: Tab, tmp_path: Path) -> None:
    (file,) = write_report(read_study(make_study(tmp_path, "print")), ["html"])
    tab.look(794, media="print")
    tab.open(file.as_uri())
    assert tab.run("document.querySelector('details table').getBoundingClientRect().height") > 100
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_the_dashboard_shows_constraints_best_trial_note_and_plots(tab: Tab, tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard")
    from tuner.report.dashboard.serve import _Quiet, _Server, make_app

    place = make_study(tmp_path, "made")
    server = make_server("127.0.0.1", 0, make_app(place), _Server, _Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/dashboard/studies/1"

    def says(*words: str) -> bool:
        text = tab.run("document.body ? document.body.innerText : ''")
        return all(word in text for word in words)

    try:
        tab.look(1400, 1000)
        tab.open(base)
        tab.wait(lambda: says("Infeasible", "P99 of E2E against the load", "SLO 30 s", "What each flag gave"))
        tab.wait(lambda: says("Predicted against measured", "feasible frontier"))
        tab.open(f"{base}/note")
        tab.wait(lambda: says("Recommended: 8.10 requests/s within the SLO", "Default against tuned"))
        tab.open(f"{base}/trials?numbers=8")
        tab.wait(lambda: says("Best Trial", "verdict: met the SLO up to 8.10 requests/s"))
        listed = "[...document.querySelectorAll('[role=button],li')].map(e => e.innerText)"
        (best,) = {text for text in tab.run(listed) if "Best Trial" in text}
        assert best.startswith("Trial 8")
        tab.open(f"{base}/trials?numbers=5")
        tab.wait(lambda: says("cause: no room for the KV cache", "server-log.txt"))
    finally:
        server.shutdown()
        server.server_close()
