"""Answers with bytes changed, dropped, doubled and cut anywhere: classed, never an exception, times in order.

A few thousand here; `KIMI_TUNE_MUTATIONS=100000 pytest tests/replay/test_stream_mutations.py` for all.
"""

from __future__ import annotations

import math
import os

import numpy as np
import orjson

from tuner.replay.call import Call
from tuner.replay.pool import Connection
from tuner.replay.records import Status

MUTATIONS = int(os.environ.get("KIMI_TUNE_MUTATIONS", "3000"))
WANTED = 6
SEED = 20260731


class Course:
    """What a call tells of itself, in place of a replay."""

    watches_first = False

    def __init__(self) -> None:
        self.ended: list[Status] = []
        self.began_s = math.nan

    def began(self, index: int, now: float) -> None:
        assert math.isnan(self.began_s)
        self.began_s = now

    def answered(self, index: int, answer: object) -> None:
        self.ended.append(answer.judge(WANTED, exact=True))  # type: ignore[attr-defined]

    def failed(self, index: int, status: Status, why: str, answer: object) -> None:
        assert why and len(why) < 200
        self.ended.append(status)

    def connect(self, call: Call) -> None:
        self.ended.append(Status.CONNECTION)


class Nowhere:
    """A pool and a transport that keep nothing."""

    def give(self, connection: Connection) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def abort(self) -> None: ...
    def write(self, data: bytes) -> None: ...


def chunked(events: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def answers() -> list[bytes]:
    """Well-formed answers of several kinds of server."""

    def event(value: object, end: bytes = b"\n\n") -> bytes:
        return b"data: " + orjson.dumps(value) + end

    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": WANTED}}
    texts = [{"choices": [{"index": 0, "text": "世x", "finish_reason": None}]}] * WANTED
    deltas = [{"choices": [{"index": 0, "delta": {"reasoning_content": "ab"}}]}] * WANTED
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    stop = {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}]}
    failed = {"error": {"message": "the engine failed", "code": 500}}
    done = b"data: [DONE]\n\n"
    streams = [
        [*map(event, texts), event(stop), event(usage), done],
        [event(role), *map(event, deltas), event(stop), event(usage), done],
        [*(event(value, b"\r\n\r\n") for value in [*texts, stop, usage]), b"data: [DONE]\r\n\r\n"],
        [*map(event, texts[:3]), event(failed)],
        [b": ping\n\n" + b"".join(map(event, texts[:4])), b"".join(map(event, [*texts[4:], stop])), done],
    ]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = orjson.dumps(failed)
    refusal = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return [*(head + chunked(stream) for stream in streams), refusal + body]


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """`data` after one to four changes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not out:
            break
        at = int(rng.integers(len(out)))
        length = int(rng.integers(1, 12))
        match int(rng.integers(6)):
            case 0:
                out[at] = int(rng.integers(256))
            case 1:
                del out[at : at + length]
            case 2:
                out[at:at] = out[at : at + length]
            case 3:
                out[at:at] = rng.bytes(length)
            case 4:
                del out[at:]
            case _:
                out[at:at] = [b"\r\n\r\n", b"0\r\n\r\n", b"data: ", b"\n\n", b"{", b'"error"'][length % 6]
    return bytes(out)


def play(data: bytes, rng: np.random.Generator) -> tuple[Call, Course]:
    """Feed an answer in pieces, then close the connection."""
    course = Course()
    connection = Connection(Nowhere())  # type: ignore[arg-type]
    connection.connection_made(Nowhere())  # type: ignore[arg-type]
    call = Call(course, 0)  # type: ignore[arg-type]
    connection.send(call, b"", b"")
    cuts = np.sort(rng.integers(0, len(data) + 1, int(rng.integers(0, 40)))).tolist()
    for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if high > low and connection.call is call:
            connection.data_received(data[low:high])
    connection.connection_lost(None)
    return call, course


def test_well_formed_answers_are_read_however_they_are_cut() -> None:
    rng = np.random.default_rng(SEED)
    expected = [Status.OK, Status.OK, Status.OK, Status.STREAM_ERROR, Status.OK, Status.HTTP_ERROR]
    for data, status in zip(answers(), expected, strict=True):
        for _ in range(60):
            call, course = play(data, rng)
            assert course.ended == [status], call.answer.error
            if status is Status.OK:
                assert call.answer.chunks == WANTED
                assert course.began_s == call.answer.first_s <= call.answer.last_s


def test_mutated_answers_are_classed() -> None:
    rng = np.random.default_rng(SEED)
    originals = answers()
    seen: set[Status] = set()
    for number in range(MUTATIONS):
        call, course = play(mutated(originals[number % len(originals)], rng), rng)
        assert len(course.ended) == 1, "every answer ends once"
        seen.add(course.ended[0])
        answer = call.answer
        assert 0 <= answer.first_tokens <= max(answer.tokens, 1)
        if course.ended[0] is Status.OK:
            assert answer.first_s <= answer.last_s
    assert {Status.OK, Status.STREAM_ERROR, Status.WRONG_LENGTH, Status.CONNECTION} <= seen
