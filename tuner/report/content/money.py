"""What a configuration costs, where the user gave a price."""

from __future__ import annotations

from tuner.profiles.profile import Measured
from tuner.report.content.view import View


def per_thousand_requests(view: View, measured: Measured) -> str:
    """The price of 1,000 requests at the capacity; empty where no price was given."""
    cost = view.profile.cost if view.profile else None
    if cost is None or measured.throughput_rps <= 0:
        return ""
    return _money(1000.0 * cost.per_s * measured.cards / measured.throughput_rps, cost.currency)


def per_million_tokens(view: View, measured: Measured) -> str:
    """The price of a million output tokens at the capacity; empty where no price was given."""
    cost = view.profile.cost if view.profile else None
    if cost is None or measured.output_tps <= 0:
        return ""
    return _money(1e6 * cost.per_s * measured.cards / measured.output_tps, cost.currency)


def _money(amount: float, currency: str) -> str:
    return f"{amount:,.3g} {currency}" if amount < 1000 else f"{amount:,.0f} {currency}"
