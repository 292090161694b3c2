"""When a profile still fits, and when to tune again: traffic that stayed, grew, or changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exported import make_profile

from tuner.errors import BadRequest
from tuner.profiles import Check, Here, Profile, check_profile, traffic_of
from tuner.profiles.traffic import REUSE_REQUESTS
from tuner.traces import SupportChat, Trace, compress_time, shipped_trace, synthesize, window

WHOLE = shipped_trace()


def profile_of(trace: Trace, **flags: int) -> Profile:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    profile = replace(make_profile(named), traffic={})
    return replace(profile, traffic=traffic_of(trace, profile.winner))


def compared(then: Trace, now: Trace) -> Check:
    return check_profile(profile_of(then), now, Here())


def moved(check: Check) -> set[str]:
    return {finding.name for finding in check.findings if finding.moved}


def longer(trace: Trace, factor: float) -> Trace:
    return replace(trace, input_tokens=(trace.input_tokens * factor).astype(np.int32))


WINDOWS = [(0.0, 0.5), (0.5, 1.0), (0.25, 0.75), (0.0, 1.0), (0.3, 0.9)]


@pytest.mark.parametrize("then", WINDOWS)
@pytest.mark.parametrize("now", WINDOWS)
def test_two_windows_of_the_same_traffic_fit(then: tuple[float, float], now: tuple[float, float]) -> None:
    check = compared(window(WHOLE, *then), window(WHOLE, *now))
    assert check.fits and len(check.findings) >= 10


@pytest.mark.parametrize("seed", range(4))
def test_the_same_kind_of_traffic_made_again_fits(seed: int) -> None:
    assert moved(compared(synthesize(SupportChat(seed=100)), synthesize(SupportChat(seed=seed)))) == set()


@pytest.mark.parametrize("part", [(0.0, 0.5), (0.5, 1.0), (0.0, 1.0)])
def test_longer_prompts_ask_for_another_tuning(part: tuple[float, float]) -> None:
    check = compared(window(WHOLE, 0.0, 0.5), longer(window(WHOLE, *part), 1.5))
    assert "input_tokens.mean" in moved(check)
    assert any(reason.startswith("prompts, mean") for reason in check.reasons)
    assert not any("answers" in reason or "rate:" in reason for reason in check.reasons)


def test_shorter_prompts_do_too() -> None:
    assert "input_tokens.mean" in moved(compared(WHOLE, longer(WHOLE, 1 / 1.5)))


@pytest.mark.parametrize("part", [(0.0, 0.5), (0.5, 1.0), (0.0, 1.0)])
def test_twice_the_rate_asks_for_another_tuning(part: tuple[float, float]) -> None:
    check = compared(window(WHOLE, *part), compress_time(window(WHOLE, *part), 2.0))
    assert moved(check) == {"rate_rps"}
    assert "2.00 times the" in check.reasons[0]


def test_half_the_rate_is_no_reason() -> None:
    assert compared(WHOLE, compress_time(WHOLE, 0.5)).fits


def test_more_than_one_server_carries_is_said() -> None:
    check = compared(WHOLE, compress_time(WHOLE, 3.0))
    assert "one server carries 3.25" in check.reasons[0]


def test_longer_answers_ask_for_another_tuning() -> None:
    changed = replace(WHOLE, output_tokens=WHOLE.output_tokens * 2)
    assert "output_tokens.mean" in moved(compared(WHOLE, changed))


def test_a_longer_tail_alone_is_seen() -> None:
    tokens = WHOLE.input_tokens.copy()
    tokens[::50] *= 8
    assert moved(compared(WHOLE, replace(WHOLE, input_tokens=tokens))) >= {"input_tokens.p99"}


def test_less_prefix_reuse_is_seen_and_its_length_is_not() -> None:
    fresh = replace(WHOLE, block_ids=np.arange(len(WHOLE.block_ids)))
    check = compared(WHOLE, fresh)
    assert moved(check) == {"prefix_reuse"}
    whole, half = traffic_of(WHOLE), traffic_of(window(WHOLE, 0.0, 0.6))
    assert whole["prefix_reuse"] == pytest.approx(half["prefix_reuse"], abs=0.03)
    short = WHOLE.take(np.arange(REUSE_REQUESTS - 1))
    assert traffic_of(short)["prefix_reuse"] is None


def test_bursts_are_seen() -> None:
    bunched = np.sort(np.floor(WHOLE.arrival_s / 30.0) * 30.0 + (WHOLE.arrival_s % 30.0) / 30.0)
    assert "cv_gaps" in moved(compared(WHOLE, replace(WHOLE, arrival_s=bunched)))


def test_requests_that_do_not_fit_are_a_reason() -> None:
    length = int(np.percentile(WHOLE.input_tokens + WHOLE.output_tokens, 99.8))
    profile = profile_of(WHOLE, max_model_len=length)
    assert profile.traffic["over_max_model_len"] == pytest.approx(0.002, abs=0.001)
    assert check_profile(profile, WHOLE, Here()).fits
    check = check_profile(profile, longer(WHOLE, 1.19), Here())
    assert "over_max_model_len" in moved(check)


@pytest.mark.parametrize(
    ("here", "names"),
    [
        (Here(vllm_version="0.21.0"), set()),
        (Here(vllm_version="0.21.0+cpu"), set()),
        (Here(vllm_version="0.21.1"), {"vllm_version"}),
        (Here(driver="550.54.15"), set()),
        (Here(driver="550.90.07"), set()),
        (Here(driver="570.1"), {"driver"}),
        (Here(gpu="A100-80G"), set()),
        (Here(gpu="2xA100-80G"), set()),
        (Here(gpu="H100-80G"), {"gpu"}),
    ],
)
def test_the_machine_is_compared(here: Here, names: set[str]) -> None:
    check = check_profile(replace(make_profile(), driver="550.54.15"), None, here)
    assert moved(check) == names and len(check.findings) == 1 and check.fits == (not names)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(BadRequest, match="no figures of its traffic"):
        check_profile(make_profile(), WHOLE, Here())
    with pytest.raises(BadRequest, match="nothing to compare"):
        check_profile(make_profile(), None, Here())
    with pytest.raises(BadRequest, match="no request"):
        check_profile(profile_of(WHOLE), WHOLE.take(np.arange(0)), Here())


def test_odd_traces_have_figures() -> None:
    one = WHOLE.take(np.arange(1))
    assert traffic_of(one)["rate_rps"] is None and traffic_of(one)["input_tokens"]["mean"] > 0
    at_once = replace(WHOLE, arrival_s=np.zeros(len(WHOLE)))
    assert traffic_of(at_once)["rate_rps"] is None
    assert not moved(compared(WHOLE, at_once)) and not moved(compared(at_once, WHOLE))


def test_a_profile_with_strange_figures_is_compared_as_far_as_it_can_be() -> None:
    traffic = {"requests": 5, "rate_rps": "fast", "input_tokens": [1], "prefix_reuse": None}
    assert check_profile(replace(make_profile(), traffic=traffic), WHOLE, Here(vllm_version="0.21.0")).fits
