"""Slots: places on this machine, or on others, where a server and its client run beside each other."""

from tuner.slots.cards import Card, cards_here
from tuner.slots.paced import PacedEngine
from tuner.slots.pool import Pool, Share, shares_of

__all__ = ["Card", "PacedEngine", "Pool", "Share", "cards_here", "shares_of"]
