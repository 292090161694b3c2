"""The price of a GPU, read and made into the price of a token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exported import make_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.profiles import cost_lines, cost_object, export, parse_gpu_cost
from tuner.profiles.cost import MONTH_S, amount, cost_of
from tuner.spec import FlagValue


@pytest.mark.parametrize(
    ("text", "currency", "per_hour"),
    [
        ("2.5USD/h", "USD", 2.5),
        ("2.5 usd / hour", "USD", 2.5),
        ("60EUR/day", "EUR", 2.5),
        ("14000CNY/month", "CNY", 14000 * 12 / (365.25 * 24)),
        ("14,000CNY/month", "CNY", 14000 * 12 / (365.25 * 24)),
        ("1,234,567.5JPY/y", "JPY", 1234567.5 / (365.25 * 24)),
        ("8766USD/year", "USD", 1.0),
        (".5GBP/h", "GBP", 0.5),
    ],
)
def test_a_price_is_read(text: str, currency: str, per_hour: float) -> None:
    price = parse_gpu_cost(text)
    assert price.currency == currency and price.per_s * 3600 == pytest.approx(per_hour)
    assert parse_gpu_cost(price.text) == price


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "2.5",
            "USD",
            "2.5USD",
            "2.5/h",
            "2.5USD/fortnight",
            "0USD/h",
            "-1USD/h",
            "2.5US/h",
            "2.5USDT/h",
        ),
        *(
            "1,5USD/h",
            "1.2.3USD/h",
            "nanUSD/h",
            "1e400USD/h",
            "2.5USD/h/h",
            "2.5$/h",
            "２USD/h",
            "9" * 400 + "USD/h",
        ),
        *("1,2,3USD/h", "2.5USD per h", "\n2.5USD/h\nx"),
    ],
)
def test_what_is_no_price_is_one_line(text: str) -> None:
    with pytest.raises(BadRequest, match="not a price") as refused:
        parse_gpu_cost(text)
    assert (
        "2.5USD/h" in refused.value.mend and "\n" not in str(refused.value) and len(str(refused.value)) < 200
    )


@settings(max_examples=60)
@given(value=st.floats(1e-6, 1e9), unit=st.sampled_from(["h", "day", "month", "year"]))
def test_what_is_written_is_read(value: float, unit: str) -> None:
    price = parse_gpu_cost(f"{value:.6f}USD/{unit}") if value >= 1e-5 else None
    if price is not None:
        assert price.amount == pytest.approx(value, abs=1e-6)


def test_a_token_costs_what_the_card_costs_in_its_time() -> None:
    """3.25 requests/s of 200 tokens each are 650 tokens/s; a card of 2.34 an hour makes a million for 1."""
    profile = make_profile({})
    price = parse_gpu_cost("2.34USD/h")
    cost = cost_of(profile.winner, price, {})
    assert cost.per_million_output == pytest.approx(1.0) and cost.per_million_tokens is None
    assert cost.per_month == pytest.approx(2.34 * 365.25 * 2)
    traffic = {"input_tokens": {"mean": 800.0}, "output_tokens": {"mean": 200.0}}
    cost = cost_of(profile.winner, price, traffic)
    assert cost.per_million_output == pytest.approx(1.0) and cost.per_million_tokens == pytest.approx(0.2)


def test_every_card_of_a_launch_is_paid_for() -> None:
    flags: dict[str, FlagValue] = {"tensor-parallel-size": 4}
    cost = cost_of(make_profile(flags).winner, parse_gpu_cost("1USD/h"), {})
    assert cost.cards == 4 and cost.per_month == pytest.approx(4 * MONTH_S / 3600)


def test_the_ratio_of_the_costs_is_the_gain() -> None:
    profile = replace(
        make_profile(), traffic={"output_tokens": {"mean": 200.0}}, cost=parse_gpu_cost("14000CNY/month")
    )
    profile = replace(profile, baseline=replace(profile.baseline, throughput_rps=3.25 / 1.42))
    shown = cost_object(profile)
    assert shown is not None
    ratio = shown["default"]["per_million_output_tokens"] / shown["tuned"]["per_million_output_tokens"]
    assert ratio == pytest.approx(1.42)
    tuned, default = cost_lines(profile)
    assert "8.19 CNY a million output tokens" in tuned and "14,000 CNY a month for 1 GPU" in tuned
    assert "11.6 CNY" in default
    assert cost_lines(replace(profile, cost=None)) == [] and cost_object(replace(profile, cost=None)) is None


def test_a_default_that_carries_nothing_has_no_price_a_token() -> None:
    profile = replace(make_profile(), cost=parse_gpu_cost("1USD/h"))
    profile = replace(profile, baseline=replace(profile.baseline, throughput_rps=0.0, output_tps=0.0))
    assert "carries nothing" in cost_lines(profile)[1]
    shown = cost_object(profile)
    assert shown is not None and shown["default"]["per_million_output_tokens"] is None


def test_exports_say_the_cost() -> None:
    profile = replace(make_profile(), cost=parse_gpu_cost("14000CNY/month"))
    for format in ("shell", "vllm", "helm", "json"):
        assert "CNY a million output tokens" in export(profile, format)


@pytest.mark.parametrize(
    ("value", "text"), [(4.286, "4.29"), (0.18847, "0.188"), (1234.5, "1,234"), (0.0, "0.00")]
)
def test_amounts_have_three_digits(value: float, text: str) -> None:
    assert amount(value) == text
