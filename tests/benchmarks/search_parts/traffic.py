"""The traffic of the problems: the trace that ships, and made-up ones that stress other parts of a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from tuner.traces import Trace, shipped_trace
from tuner.traces.synthesis import Lengths, SupportChat, synthesize
from tuner.traces.trace import TraceSource

_REQUESTS = 2000
_DURATION_S = 1200.0


def _lognormal(rng: np.random.Generator, median: float, sigma: float, low: int, high: int) -> np.ndarray:
    return np.clip(rng.lognormal(np.log(median), sigma, _REQUESTS), low, high).astype(np.int32)


def _arrivals(rng: np.random.Generator, burstiness: float) -> np.ndarray:
    """Gamma gaps: the squared coefficient of variation is the burstiness, 1 is Poisson."""
    gaps = rng.gamma(1.0 / burstiness, burstiness, _REQUESTS)
    at_s = np.cumsum(gaps)
    return np.asarray((at_s - at_s[0]) * _DURATION_S / (at_s[-1] - at_s[0]))


def _plain(name: str, arrival_s: np.ndarray, prompt: np.ndarray, answer: np.ndarray) -> Trace:
    """A trace whose prompts share nothing."""
    return Trace(
        arrival_s=arrival_s,
        input_tokens=prompt,
        output_tokens=answer,
        session=np.arange(_REQUESTS, dtype=np.int64),
        block_offsets=np.zeros(_REQUESTS + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource(format="made up", prefix_reuse=False, notes=(name,)),
    )


def _conversation() -> Trace:
    """Prompts of about 700 tokens, answers of about 150, no reuse: like a public assistant."""
    rng = np.random.default_rng(101)
    prompt = _lognormal(rng, 700, 1.0, 16, 7000)
    return _plain("conversation", _arrivals(rng, 1.6), prompt, _lognormal(rng, 150, 0.7, 8, 900))


def _code() -> Trace:
    """Prompts of about 1,500 tokens, answers of a line or two, in bursts: like code completion."""
    rng = np.random.default_rng(102)
    prompt = _lognormal(rng, 1500, 0.8, 32, 7000)
    return _plain("code", _arrivals(rng, 3.0), prompt, _lognormal(rng, 24, 0.8, 4, 240))


def _reasoning() -> Trace:
    """Short prompts and answers of about 900 tokens: decoding is nearly everything."""
    rng = np.random.default_rng(103)
    prompt = _lognormal(rng, 220, 0.8, 16, 3000)
    return _plain("reasoning", _arrivals(rng, 1.0), prompt, _lognormal(rng, 900, 0.5, 60, 3000))


def _documents() -> Trace:
    """Questions about 60 documents of about 3,500 tokens, some asked far more often than others."""
    rng = np.random.default_rng(104)
    block = 64
    length = np.clip(rng.lognormal(np.log(3500), 0.5, 60), 800, 12000).astype(int) // block
    weight = 1.0 / np.arange(1, 61) ** 0.9
    which = rng.choice(60, _REQUESTS, p=weight / weight.sum())
    question = _lognormal(rng, 90, 0.6, 10, 600)
    first = np.cumsum([0, *length[:-1]])
    own = int(length.sum())
    ids: list[int] = []
    offsets, prompt = [0], np.empty(_REQUESTS, dtype=np.int32)
    for i, document in enumerate(which):
        prompt[i] = length[document] * block + question[i]
        more = -(-int(question[i]) // block)
        ids += [*range(first[document], first[document] + length[document]), *range(own, own + more)]
        own += more
        offsets.append(len(ids))
    return Trace(
        arrival_s=_arrivals(rng, 1.3),
        input_tokens=prompt,
        output_tokens=_lognormal(rng, 130, 0.5, 8, 600),
        session=np.arange(_REQUESTS, dtype=np.int64),
        block_offsets=np.array(offsets, dtype=np.int64),
        block_ids=np.array(ids, dtype=np.int64),
        block_tokens=block,
        source=TraceSource(format="made up", prefix_reuse=True, notes=("documents",)),
    )


def _short_chat() -> Trace:
    """Many short turns behind a short system prompt."""
    return synthesize(
        SupportChat(
            seed=105,
            requests=_REQUESTS,
            duration_s=_DURATION_S,
            turns=3.0,
            system_tokens=256,
            account=Lengths(120, 0.6, 800),
            question=Lengths(50, 0.8, 600),
            answer=Lengths(180, 0.6, 700),
            pasted_share=0.0,
            longest=6000,
            burst_share=0.1,
        )
    )


def _agents() -> Trace:
    """Long sessions whose prompts grow with every tool call, answers short."""
    return synthesize(
        SupportChat(
            seed=106,
            requests=_REQUESTS,
            duration_s=_DURATION_S,
            turns=9.0,
            system_tokens=1984,
            account=Lengths(500, 0.7, 3000),
            question=Lengths(350, 0.9, 2500),
            answer=Lengths(70, 0.7, 500),
            pasted_share=0.1,
            pause=Lengths(4, 0.7, 60),
            longest=15000,
        )
    )


TRAFFIC: dict[str, Callable[[], Trace]] = {
    "shipped": shipped_trace,
    "conversation": _conversation,
    "code": _code,
    "reasoning": _reasoning,
    "documents": _documents,
    "short chat": _short_chat,
    "agents": _agents,
}
"""Traces by name."""


@cache
def traffic(name: str) -> Trace:
    """A trace, made once."""
    return TRAFFIC[name]()
