"""What a GPU costs, and what that makes of a measured capacity."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import BadRequest

if TYPE_CHECKING:
    from tuner.profiles.profile import Measured, Profile

DAY_S = 86_400.0
YEAR_S = 365.25 * DAY_S
MONTH_S = YEAR_S / 12
_UNITS = {
    **dict.fromkeys(("h", "hr", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), DAY_S),
    **dict.fromkeys(("mo", "month"), MONTH_S),
    **dict.fromkeys(("y", "yr", "year"), YEAR_S),
}
_COST = re.compile(r"\s*([0-9]+(?:[.,][0-9]+)*|\.[0-9]+)\s*([A-Za-z]{3})\s*/\s*([A-Za-z]+)\s*")
_THOUSANDS = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_PLAIN = re.compile(r"[0-9]*\.?[0-9]+")
_MEND = "write it like 2.5USD/h or 14000CNY/month (h, day, month or year; the price of one GPU)"


@dataclass(frozen=True, slots=True)
class GpuCost:
    """The price of one GPU: `amount` of `currency` in the unit of time of `text` ("14000CNY/month"), and the
    same per second. A year has 365.25 days, a month is its twelfth part.
    """

    amount: float
    currency: str
    per_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What one configuration costs at its measured capacity, in `GpuCost.currency`: its `cards` GPUs for a
    month, and a million tokens served; None where it carries nothing or the figure is not known.
    """

    cards: int
    per_month: float
    per_million_output: float | None
    per_million_tokens: float | None

    def to_json(self) -> dict[str, float | int | None]:
        """Plain JSON values by the field's names."""
        return {
            "cards": self.cards,
            "per_month": self.per_month,
            "per_million_output_tokens": self.per_million_output,
            "per_million_tokens": self.per_million_tokens,
        }


def parse_gpu_cost(text: str, what: str = "--gpu-cost") -> GpuCost:
    """The price in "2.5USD/h", "60 EUR/day", "14,000CNY/month" or "120000CNY/year".

    Raises:
        BadRequest: not a price above zero, a currency of three letters, and a unit of time.
    """
    match = _COST.fullmatch(text)
    number = match[1] if match else ""
    if _THOUSANDS.fullmatch(number):
        number = number.replace(",", "")
    amount = float(number) if _PLAIN.fullmatch(number) else 0.0
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None or not 0.0 < amount < math.inf:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise BadRequest(f"{what} {shown!r}: not a price", _MEND)
    currency = match[2].upper()
    return GpuCost(amount, currency, amount / unit, f"{amount:.12g}{currency}/{match[3].lower()}")


def cost_of(measured: Measured, price: GpuCost, traffic: Mapping[str, Any]) -> Cost:
    """What a configuration costs at its capacity. The tokens of a request are the means of the `traffic`;
    where they are not known, output tokens are those measured, and prompts are not priced.
    """
    per_s = price.per_s * measured.cards
    sent, received = _mean(traffic, "input_tokens"), _mean(traffic, "output_tokens")
    output = measured.throughput_rps * received if received is not None else measured.output_tps
    together = output + measured.throughput_rps * sent if sent is not None else 0.0
    return Cost(
        cards=measured.cards,
        per_month=per_s * MONTH_S,
        per_million_output=1e6 * per_s / output if output > 0.0 else None,
        per_million_tokens=1e6 * per_s / together if output > 0.0 and together > 0.0 else None,
    )


def _mean(traffic: Mapping[str, Any], column: str) -> float | None:
    lengths = traffic.get(column)
    mean = lengths.get("mean") if isinstance(lengths, Mapping) else None
    return float(mean) if isinstance(mean, int | float) and not isinstance(mean, bool) else None


def costs_of(profile: Profile, price: GpuCost | None = None) -> tuple[GpuCost, Cost, Cost] | None:
    """The price, and what winner and default cost; None where no price is known."""
    price = price or profile.cost
    if price is None:
        return None
    winner, default = profile.winner, profile.baseline
    return price, cost_of(winner, price, profile.traffic), cost_of(default, price, profile.traffic)


def cost_object(profile: Profile, price: GpuCost | None = None) -> dict[str, Any] | None:
    """The costs as plain JSON values: the price, tuned and default."""
    costs = costs_of(profile, price)
    if costs is None:
        return None
    price, tuned, default = costs
    return {
        "price": price.text,
        "currency": price.currency,
        "per_gpu_second": price.per_s,
        "tuned": tuned.to_json(),
        "default": default.to_json(),
    }


def cost_lines(profile: Profile, price: GpuCost | None = None) -> list[str]:
    """The costs in sentences for a person; [] where no price is known."""
    costs = costs_of(profile, price)
    if costs is None:
        return []
    price, tuned, default = costs
    lines = [_line("cost" if profile.recommendation == "default" else "cost, tuned", tuned, price)]
    if profile.recommendation != "default":
        lines.append(_line("cost, default", default, price))
    return lines


def _line(name: str, cost: Cost, price: GpuCost) -> str:
    per_month = f"{cost.per_month:,.0f} {price.currency} a month"
    if cost.per_million_output is None:
        return f"{name}: {per_month}, and it carries nothing within the SLO"
    text = f"{name}: {amount(cost.per_million_output)} {price.currency} a million output tokens"
    if cost.per_million_tokens is not None:
        text += f" ({amount(cost.per_million_tokens)} with the prompts counted)"
    cards = f"{cost.cards} GPUs" if cost.cards > 1 else "1 GPU"
    return f"{text}, {per_month} for {cards} at {price.text}"


def amount(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0.0 else 2
    return f"{value:,.{min(digits, 8)}f}"
