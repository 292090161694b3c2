"""Damaged files: bytes changed, cut, doubled, moved, or odd pieces put in."""

from __future__ import annotations

import random

_WORDS = rb""", " { } [ ] : - . e9 0 null true NaN Infinity "" [] {} 1e308 -1 +00:00 Z 4294967296 \u0000"""
_ODD = [
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"9" * 25,
    b"2024-05-10 00:00",
]
_PIECES = [*_WORDS.split(), *_ODD]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The file with one to four damages: bytes changed, cut, doubled, moved, or odd pieces put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not out:
            break
        a, b = sorted(rng.randrange(len(out) + 1) for _ in range(2))
        b = min(b, a + 40)
        match rng.randrange(6):
            case 0:
                out[min(a, len(out) - 1)] = rng.randrange(256)
            case 1:
                del out[a:b]
            case 2:
                out[a:a] = out[a:b] * rng.randint(1, 3)
            case 3:
                out[a:b] = rng.choice(_PIECES)
            case 4:
                out[a:a] = rng.choice(_PIECES)
            case _:
                del out[rng.randrange(len(out)) :]
    return bytes(out)
