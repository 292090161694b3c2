"""A made-up trace with the marks of a support chat: turns behind a shared prompt, a swing, and bursts.

Sessions begin at times drawn from a density that swings over the trace and has bursts on top. Every session
opens with the shared system prompt and an account of its own (who the customer is, which articles fit), and
every turn's prompt is the last prompt, its answer and a new question. Lengths and pauses are log-normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from tuner.errors import BadRequest
from tuner.traces.sessions import numbered
from tuner.traces.trace import F64, Trace, TraceSource

REPLY_TOKENS_PER_S = 40.0
"""How fast answers are taken to come when the next turn's time is drawn."""
_EMPTY_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths in tokens: the median, the standard deviation of the logarithm, and the longest."""

    median: float
    sigma: float
    longest: int

    def draw(self, rng: np.random.Generator) -> int:
        """One length, 1 or more."""
        return int(min(max(1.0, rng.lognormal(np.log(self.median), self.sigma)), self.longest))


@dataclass(frozen=True, slots=True)
class SupportChat:
    """What the trace is drawn from; lengths in tokens, times in seconds."""

    requests: int = 2000
    duration_s: float = 1200.0
    seed: int = 5
    block_tokens: int = 64
    turns: float = 4.2
    """Mean number of turns of a session (geometric)."""
    system_tokens: int = 1216
    account: Lengths = Lengths(700, 0.8, 6000)
    question: Lengths = Lengths(60, 0.9, 1500)
    answer: Lengths = Lengths(100, 0.55, 450)
    pasted: Lengths = Lengths(1200, 0.7, 5000)
    """A log or a document that a customer pastes into a turn."""
    pasted_share: float = 0.04
    pause: Lengths = Lengths(26, 0.8, 600)
    """Seconds between an answer's end and the next question."""
    longest: int = 16000
    """No request is longer, prompt and answer together: the session ends before it."""
    swing_s: float = 600.0
    swing: float = 0.8
    """How long a swing takes, and how far it goes from the mean, as a share of it."""
    burst_every_s: float = 200.0
    burst_share: float = 0.15
    burst_s: float = 14.0
    """How often there is a burst, the share of the sessions that begins in one, and how long it lasts."""


@dataclass(frozen=True, slots=True)
class _Turn:
    at_s: float
    session: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


def synthesize(chat: SupportChat | None = None) -> Trace:
    """A trace of exactly `chat.requests` requests over `chat.duration_s` seconds, the same for the same
    parameters; they are recorded in `source.changes`.

    Raises:
        BadRequest: parameters that give no such trace.
    """
    chat = chat or SupportChat()
    _check(chat)
    turns: list[_Turn] = []
    for session in _sessions(chat):
        turns.extend(session[: chat.requests - len(turns)])
        if len(turns) == chat.requests:
            break
    turns.sort(key=lambda turn: turn.at_s)
    offsets = np.cumsum([0, *(len(turn.blocks) for turn in turns)])
    ids = np.fromiter((block for turn in turns for block in turn.blocks), np.int64, offsets[-1])
    return Trace(
        arrival_s=_arrivals(np.array([turn.at_s for turn in turns]), chat.duration_s),
        input_tokens=np.array([turn.input_tokens for turn in turns], np.int32),
        output_tokens=np.array([turn.output_tokens for turn in turns], np.int32),
        session=numbered(np.array([turn.session for turn in turns])),
        block_offsets=offsets.astype(np.int64),
        block_ids=numbered(ids),
        block_tokens=chat.block_tokens,
        source=TraceSource(
            format="kimi-tune",
            prefix_reuse=True,
            notes=("made up, not recorded: a support chat",),
            changes=({"change": "synthesize", "kind": "support-chat", **asdict(chat)},),
        ),
    )


def _check(chat: SupportChat) -> None:
    if chat.requests < 2 or not 0 < chat.duration_s < 1e8 or chat.turns < 1 or chat.block_tokens < 1:
        raise BadRequest(
            "no such trace can be made",
            "give 2 requests or more, a duration above 0, turns and blocks from 1",
        )
    lengths = (chat.account, chat.question, chat.answer, chat.pasted, chat.pause)
    positive = [chat.swing_s, chat.burst_every_s, chat.burst_s, *(length.median for length in lengths)]
    if min(positive) <= 0 or not 0 <= chat.burst_share < 1 or not 0 <= chat.swing <= 1:
        raise BadRequest(
            "no such trace can be made", "give medians and times above 0, shares and swing from 0 to 1"
        )
    if chat.longest < chat.system_tokens + 64:
        raise BadRequest(
            f"requests of at most {chat.longest} tokens behind a system prompt of {chat.system_tokens}",
            "give longer requests or a shorter system prompt",
        )


def _arrivals(at_s: F64, duration_s: float) -> F64:
    """The times stretched to begin at 0 and end at the duration, in whole milliseconds."""
    span = at_s[-1] - at_s[0]
    stretched = (at_s - at_s[0]) * (duration_s / span) if span > 0 else at_s - at_s[0]
    return np.asarray(np.rint(stretched * 1e3) / 1e3, np.float64)


def _sessions(chat: SupportChat) -> Iterator[list[_Turn]]:
    """Sessions without end, each the turns that fall within the trace; ones that began before it come in the
    middle.
    """
    rng = np.random.default_rng(chat.seed)
    lead_s = min(chat.duration_s, 900.0)
    burst_at = rng.uniform(0.05, 0.95, max(1, round(chat.duration_s / chat.burst_every_s))) * chat.duration_s
    shared = chat.system_tokens // chat.block_tokens
    next_block, number, empty = shared, 0, 0
    while True:
        begin = _begin(chat, rng, burst_at, lead_s)
        blocks = list(range(shared))
        turns: list[_Turn] = []
        at_s = begin
        tokens = chat.system_tokens + chat.account.draw(rng)
        for _ in range(int(rng.geometric(1 / chat.turns))):
            tokens += chat.question.draw(rng)
            if rng.random() < chat.pasted_share:
                tokens += chat.pasted.draw(rng)
            answer = chat.answer.draw(rng)
            if tokens + answer > chat.longest or at_s > chat.duration_s:
                break
            full, count = tokens // chat.block_tokens, -(-tokens // chat.block_tokens)
            added = full - len(blocks)
            blocks.extend(range(next_block, next_block + added))
            last = (next_block + added,) if count > full else ()
            next_block += added + len(last)
            if at_s >= 0:
                turns.append(_Turn(at_s, number, tokens, answer, (*blocks, *last)))
            tokens += answer
            at_s += 0.5 + answer / REPLY_TOKENS_PER_S + chat.pause.draw(rng)
        empty = 0 if turns else empty + 1
        if empty == _EMPTY_SESSIONS:
            raise BadRequest("hardly a session fits the lengths and the duration", "give more of either")
        if turns:
            yield turns
            number += 1


def _begin(chat: SupportChat, rng: np.random.Generator, burst_at: F64, lead_s: float) -> float:
    """When a session begins: in a burst, or at a time that the swing accepts."""
    if rng.random() < chat.burst_share:
        return float(rng.choice(burst_at) + rng.exponential(chat.burst_s / 2))
    while True:
        at_s = float(rng.uniform(-lead_s, chat.duration_s))
        height = 1 - chat.swing * np.cos(2 * np.pi * at_s / chat.swing_s)
        if rng.random() * (1 + chat.swing) < height:
            return at_s
