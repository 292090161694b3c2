"""What a GPU costs, and what that makes of a capacity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuCost:
    """The price of one GPU: `amount` of `currency` in the unit of time of `text` ("14000CNY/month"), and the
    same per second.
    """

    amount: float
    currency: str
    per_s: float
    text: str
