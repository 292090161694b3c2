"""`replay` against a server with a known truth, `simulate` against itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.replay import MockServer
from tuner.replay.mock import Timing
from tuner.traces import Trace, TraceSource, write_trace

REPLAY_KEYS = {
    "verdict", "offered_rps", "achieved_rps", "requests", "failed", "e2e_s", "ttft_s", "tpot_s", "lag_s",
    "output_tps", "goodput_rps", "attainment", "invalid_reason",
}  # fmt: skip
ADDED_KEYS = {"reason", "simulated", "errors", "tokens_estimated", "counters", "server", "window", "changes"}
SEARCH_KEYS = {"capacity_rps", "capacity_bracket_rps", "replays", "tried"}
GPU = ("--gpu", "A100-80G")


@pytest.fixture
def even_trace(tmp_path: Path) -> Path:
    """200 requests in 4 s, 20 tokens in and 5 out."""
    n = 200
    trace = Trace(
        arrival_s=np.arange(n) * 0.02,
        input_tokens=np.full(n, 20, np.int32),
        output_tokens=np.full(n, 5, np.int32),
        session=np.arange(n),
        block_offsets=np.zeros(n + 1, np.int64),
        block_ids=np.empty(0, np.int64),
        block_tokens=0,
        source=TraceSource("made"),
    )
    path = tmp_path / "even.jsonl"
    write_trace(trace, path)
    return path


def test_a_replay_has_the_figures_of_the_design(kimi_tune, even_trace: Path) -> None:
    with MockServer(Timing(ttft_s=0.05, tpot_s=0.01)) as server:
        ran = kimi_tune("replay", "--url", server.url, "--trace", even_trace, "--json")
    assert ran.code == 0, ran.err
    figures = ran.json
    assert set(figures) == REPLAY_KEYS | ADDED_KEYS
    assert figures["requests"] == 200 and figures["failed"] == 0
    assert set(figures["e2e_s"]) == {"mean", "p50", "p90", "p99", "p99_interval"}
    assert set(figures["lag_s"]) == {"p50", "p99", "max"}
    assert figures["ttft_s"]["p50"] >= 0.05
    assert figures["e2e_s"]["p50"] >= 0.09


@pytest.mark.parametrize(("slo", "code", "verdict"), [("20s", 6, "CANNOT TELL"), ("900ms", 3, "FAIL")])
def test_the_exit_code_is_the_verdict(kimi_tune, even_trace: Path, slo: str, code: int, verdict: str) -> None:
    # a second to answer, so that the lag of a busy machine is small beside the SLO
    with MockServer(Timing(ttft_s=1.0, tpot_s=0.01)) as server:
        argv = ("replay", "--url", server.url, "--trace", even_trace, "--slo-p99", slo, "--json")
        ran = kimi_tune(*argv)
    assert ran.code == code, "200 requests are too few for a PASS"
    assert ran.json["verdict"] == verdict
    assert ran.json["requests"] == 200, "a plain replay runs to its end"


def test_the_capacity_of_a_running_server_is_found(kimi_tune, even_trace: Path) -> None:
    # 4 requests at a time of 0.1 s each: 40 requests a second, whatever comes
    with MockServer(Timing(ttft_s=0.06, tpot_s=0.01, slots=4)) as server:
        ran = kimi_tune("replay", "--url", server.url, "--trace", even_trace, "--find-max", "--json",
                        "--slo-p99", "1s", "--requests", "150", "--start-rps", "30")  # fmt: skip
    assert ran.code == 0, ran.err
    assert set(ran.json) == REPLAY_KEYS | ADDED_KEYS | SEARCH_KEYS
    assert ran.json["capacity_rps"] == pytest.approx(40.0, rel=0.25)
    low, high = ran.json["capacity_bracket_rps"]
    assert low == ran.json["capacity_rps"] < high <= low * 1.0501
    assert ran.json["replays"] == len(ran.json["tried"]) >= 2
    loads = [row["load_rps"] for row in ran.json["tried"]]
    assert loads == sorted(loads) and {low, high} <= set(loads)
    assert [row["passes"] for row in ran.json["tried"]] == [load <= low for load in loads]
    # each replay was told when it was done, and what was done to the trace goes with the figures
    assert len([line for line in ran.err.splitlines() if "requests/s: m" in line]) == ran.json["replays"]
    assert [change["change"] for change in ran.json["changes"]] == ["window", "load"]
    assert all({"dispersion_before", "dispersion_after"} <= set(change) for change in ran.json["changes"])


def test_numbers_of_users_stand_in_a_table(kimi_tune) -> None:
    argv = ("simulate", *GPU, "--slo-p99", "30s", "--find-max", "--load", "users", "--requests", "60")
    figures = kimi_tune(*argv, "--users", "10", "--json").json
    tried = {row["users"]: row for row in figures["tried"]}
    assert list(tried) == sorted(tried) and 10 in tried and figures["capacity_users"] in tried
    assert tried[figures["capacity_users"]]["passes"] and figures["replays"] == len(tried)
    assert all(row["e2e_p99_s"] is not None for row in figures["tried"] if not row["stopped"])
    shown = kimi_tune(*argv, "--users", "10").out
    head = next(line for line in shown.splitlines() if line.startswith("users"))
    assert head.split() == [
        "users",
        "requests/s",
        "output",
        "tokens/s",
        "mean",
        "P99",
        "within",
        "the",
        "SLO",
    ]
    firsts = [line.split()[0] for line in shown.splitlines() if line.rstrip().endswith(" it")]
    assert firsts == [f"{users:,}" for users in tried]


def test_goodput_attainment_and_the_trace_made_faster_are_shown(kimi_tune) -> None:
    argv = ("simulate", *GPU, "--slo-p99", "10s", "--speed", "2")
    shown = kimi_tune(*argv).out
    assert "within the SLO" in shown and "goodput" in shown
    line = next(line for line in shown.splitlines() if "compress time" in line)
    assert "factor 2; before: index of dispersion" in line and "; after: index of dispersion" in line
    assert "goodput" not in kimi_tune("simulate", *GPU).out, "without an SLO there is none"


def test_a_simulated_measurement_says_so(kimi_tune) -> None:
    ran = kimi_tune("simulate", *GPU, "--slo-p99", "30s")
    assert ran.code == 0
    assert ran.out.startswith("SIMULATED")
    as_json = kimi_tune("simulate", *GPU, "--slo-p99", "30s", "--json").json
    assert set(as_json) == REPLAY_KEYS | ADDED_KEYS
    assert as_json["simulated"] is True and as_json["requests"] == 2000


def test_users_and_rates_and_speeds_are_offered(kimi_tune) -> None:
    users = kimi_tune("simulate", *GPU, "--load", "users", "--users", "4", "--requests", "60", "--json").json
    assert users["requests"] == 60
    rate = kimi_tune("simulate", *GPU, "--rate", "0.5", "--requests", "100", "--json").json
    assert rate["offered_rps"] == pytest.approx(0.5, rel=0.3)
    quick = kimi_tune("simulate", *GPU, "--speed", "2", "--json").json
    assert quick["offered_rps"] == pytest.approx(2 * 2000 / 1200, rel=0.05)
    assert kimi_tune("simulate", *GPU, "--window", "0.5:1", "--json").json["requests"] < 2000


@pytest.mark.parametrize(
    "argv",
    [
        ("--users", "5"),
        ("--start-rps", "3"),
        ("--find-max", "--rate", "3"),
        ("--load", "users", "--rate", "3"),
        ("--find-max", "--load", "users", "--start-rps", "3"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(kimi_tune, argv: tuple[str, ...]) -> None:
    ran = kimi_tune("simulate", *GPU, "--slo-p99", "30s", *argv)
    assert ran.code == 2 and len(ran.err.strip().splitlines()) == 1 and not ran.out
    assert ran.err.split()[1].startswith(("--users", "--start-rps", "--rate"))


def test_a_configuration_that_cannot_start_is_exit_4_with_its_cause(kimi_tune) -> None:
    ran = kimi_tune("simulate", *GPU, "--set", "gpu-memory-utilization=0.2", "--slo-p99", "30s")
    assert ran.code == 4
    assert len(ran.err.strip().splitlines()) == 1
    assert "kv_memory" in ran.err or "weights" in ran.err


@pytest.mark.parametrize("name", ["plot.png", "trace.jsonl", "plot"])
def test_a_plot_goes_into_an_svg_and_over_nothing_else(kimi_tune, even_trace: Path, name: str) -> None:
    there = even_trace.with_name(name)
    there.write_text("mine")
    ran = kimi_tune("trace", "inspect", even_trace, "--plot", there)
    assert ran.code == 2 and ".svg" in ran.err and not ran.out
    assert there.read_text() == "mine"
    assert kimi_tune("trace", "inspect", even_trace, "--plot", "no/such/folder.svg").code == 2


def test_what_a_trace_does_not_say_and_what_was_done_to_it_are_told(kimi_tune, even_trace: Path) -> None:
    kimi_tune("trace", "convert", even_trace, "fast.jsonl", "--speed", "2")
    shown = kimi_tune("trace", "inspect", "fast.jsonl").out.splitlines()
    assert "prefix reuse    not recorded" in shown
    assert any(line.startswith("dispersion      CV of gaps ") for line in shown)
    assert any(line.startswith("changed         compress time, factor 2; before: ") for line in shown)


def test_the_shipped_trace_is_inspected_converted_and_drawn(kimi_tune, tmp_path: Path) -> None:
    seen = kimi_tune("trace", "inspect", "--json", "--plot", tmp_path / "plot.svg").json
    assert seen["requests"] == 2000
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    made = tmp_path / "made.jsonl"
    assert kimi_tune("trace", "synthesize", made, "--requests", "50", "--seed", "3").code == 0
    assert kimi_tune("trace", "synthesize", made).code == 2, "nothing is overwritten"
    other = tmp_path / "other.jsonl.gz"
    assert kimi_tune("trace", "convert", made, other).code == 0
    digests = {kimi_tune("trace", "inspect", path, "--json").json["digest"] for path in (made, other)}
    assert len(digests) == 1


def test_a_log_is_explained(kimi_tune, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("vllm: error: unrecognized arguments: --swap-space 4\n")
    ran = kimi_tune("explain", log, "--json")
    assert ran.code == 0
    assert ran.json["ready"] is False and ran.json["kind"] == "bad_flag"
    assert kimi_tune("explain", tmp_path / "none.log").code == 2


def test_the_doctor_says_whether_the_real_engine_can_run(kimi_tune) -> None:
    ran = kimi_tune("doctor", "--json")
    failed = [check for check in ran.json["checks"] if check["status"] == "fail"]
    assert ran.code == (5 if failed else 0)
    assert all(check["mend"] for check in failed)
