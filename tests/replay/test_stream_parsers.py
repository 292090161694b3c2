"""The parsers of the wire: any cut of the bytes gives the same, and no bytes make them raise."""

from __future__ import annotations

import math

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.replay.answer import Answer
from tuner.replay.http1 import ProtocolError, ResponseReader
from tuner.replay.records import Status
from tuner.replay.sse import EventReader

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=8)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def event_streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, bool]]]:
    """An event stream and what is in it, written with every liberty that the format allows."""
    out, expected = b"", []
    for _ in range(draw(st.integers(0, 6))):
        end = draw(ENDS)
        lines = draw(st.lists(TEXTS, min_size=1, max_size=3))
        error = draw(st.booleans())
        if draw(st.booleans()):
            out += b": a comment" + end
        if error:
            out += b"event: error" + end
        for line in lines:
            out += b"data: " + line.encode() + end
            if draw(st.booleans()):
                out += b"id: 7" + end
        out += end
        expected.append(("\n".join(lines).encode(), error))
    return out, expected


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at the given places."""
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False)]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(event_streams(), CUTS)
def test_events_are_the_same_however_the_bytes_are_cut(
    stream: tuple[bytes, list[tuple[bytes, bool]]], places: list[int]
) -> None:
    data, expected = stream
    reader = EventReader()
    events = [event for piece in cut(data, places) for event in reader.feed(piece)]
    assert events == expected
    assert reader.close() == []


def test_single_bytes_with_crlf() -> None:
    reader = EventReader()
    data = 'data: {"a": "世"}\r\n\r\n:x\r\ndata: [DONE]\r\n\r\n'.encode()
    events = [event for byte in data for event in reader.feed(bytes([byte]))]
    assert events == [('{"a": "世"}'.encode(), False), (b"[DONE]", False)]


def test_a_stream_without_its_last_blank_line_loses_nothing() -> None:
    reader = EventReader()
    assert reader.feed(b"data: 1\n\ndata: 2") == [(b"1", False)]
    assert reader.close() == [(b"2", False)]


@settings(max_examples=120)
@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"data: {", b"data:", b"\r", b"\n\n", b"\r\n"])))
def test_random_bytes_never_raise(pieces: list[bytes]) -> None:
    answer = Answer()
    for at, piece in enumerate(pieces):
        answer.feed(piece, float(at))
    answer.close(99.0)
    assert answer.judge(4, exact=True) in (Status.STREAM_ERROR, Status.WRONG_LENGTH)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "text", "content", "usage", "error", "tool_calls", "function"]
                + ["completion_tokens", "prompt_tokens", "finish_reason", "reasoning", "message", "arguments"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=120)
@given(st.lists(JSON, max_size=5))
def test_json_of_any_shape_never_raises(values: list[object]) -> None:
    answer = Answer()
    for value in values:
        answer.feed(b"data: " + orjson.dumps(value) + b"\n\n", 1.0)
    answer.close(2.0)
    status = answer.judge(3, exact=True)
    assert answer.first_tokens <= max(answer.tokens, 1)
    assert status is not Status.OK or answer.finish_reason is not None


def feed(*events: object) -> Answer:
    """An answer fed one event a second from 1 on."""
    answer = Answer()
    for at, event in enumerate(events):
        data = event if isinstance(event, bytes) else orjson.dumps(event)
        answer.feed(b"data: " + data + b"\n\n", float(at + 1))
    answer.close(float(len(events) + 1))
    return answer


def text(value: str, finish: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": value, "finish_reason": finish}], **more}


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(tokens: int) -> dict[str, object]:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def test_role_only_is_no_token() -> None:
    answer = feed(delta(role="assistant", content=""), delta(content="a"), delta("length"), usage(1))
    assert (answer.first_s, answer.last_s, answer.tokens) == (2.0, 3.0, 1)
    assert answer.judge(1, exact=True) is Status.OK


@pytest.mark.parametrize("name", ["content", "reasoning", "reasoning_content"])
def test_text_under_every_name_is_a_token(name: str) -> None:
    answer = feed(delta(role="assistant"), delta(**{name: "a"}), delta("stop", **{name: "b"}), usage(2))
    assert (answer.first_s, answer.last_s, answer.chunks) == (2.0, 3.0, 2)


def test_tool_calls_are_tokens() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": ""}}
    answer = feed(delta(role="assistant"), delta(tool_calls=[call]), delta("tool_calls"), usage(1))
    assert answer.first_s == 2.0
    assert answer.judge(1, exact=True) is Status.OK


def test_an_empty_text_is_a_token_of_half_a_character() -> None:
    answer = feed(text(""), text("世"), text("", "length"), usage(2))
    assert (answer.first_s, answer.chunks) == (1.0, 2)


def test_the_end_of_usage_and_done_is_not_the_end_of_the_answer() -> None:
    answer = feed(text("a"), text("b", "length"), usage(2), b"[DONE]")
    assert answer.last_s == 2.0


def test_first_chunk_of_four_among_fours() -> None:
    answer = feed(text("aaaa"), text("aaaa"), text("aaaa"), text("", "length"), usage(12))
    assert answer.first_tokens == 4


def test_first_chunk_of_one_before_tens() -> None:
    answer = feed(text("a"), text("a" * 10), text("a" * 10, "length"), usage(21))
    assert answer.first_tokens == 1


def test_usage_with_every_chunk_tells_the_first_chunks_tokens() -> None:
    first = text("ab", usage={"completion_tokens": 3})
    answer = feed(first, text("cd", usage={"completion_tokens": 9}), text("", "length"), usage(9))
    assert (answer.first_tokens, answer.tokens) == (3, 9)


def test_no_usage_counts_chunks() -> None:
    answer = feed(text("a"), text("b"), text("", "stop"))
    assert (answer.tokens, answer.usage_tokens) == (2, None)
    assert answer.judge(5, exact=True) is Status.OK


@pytest.mark.parametrize(
    ("events", "status", "error"),
    [
        ([text("a"), {"error": {"message": "dead"}}], Status.STREAM_ERROR, "dead"),
        ([text("a"), {"error": "dead"}], Status.STREAM_ERROR, "dead"),
        ([text("a"), b"not json"], Status.STREAM_ERROR, "an event is not JSON"),
        ([text("a"), text("", "error")], Status.STREAM_ERROR, "finish reason error"),
        ([text("a"), usage(1)], Status.WRONG_LENGTH, "no finish reason"),
        ([text("a", "stop"), usage(1)], Status.WRONG_LENGTH, "fewer tokens than asked"),
        ([text("a", "stop"), usage(3)], Status.WRONG_LENGTH, "more tokens than asked"),
        ([delta("stop"), usage(0)], Status.WRONG_LENGTH, "fewer tokens than asked"),
        ([], Status.WRONG_LENGTH, "no finish reason"),
    ],
)
def test_what_is_no_full_answer(events: list[object], status: Status, error: str) -> None:
    answer = feed(*events)
    assert answer.judge(2, exact=True) is status
    assert answer.error == error


def test_an_event_named_error_is_one() -> None:
    answer = Answer()
    answer.feed(b'event: error\ndata: {"message": "out of blocks"}\n\n', 1.0)
    assert answer.judge(1, exact=True) is Status.STREAM_ERROR
    assert answer.error == "out of blocks"


def test_another_length_is_right_where_none_is_asked_for() -> None:
    assert feed(text("a", "stop"), usage(1)).judge(2, exact=False) is Status.OK


def test_a_complete_answer_without_a_stream() -> None:
    answer = Answer()
    body = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    answer.whole(orjson.dumps(body), 3.0)
    assert (answer.first_s, answer.last_s, answer.tokens, answer.first_tokens) == (3.0, 3.0, 2, 2)
    assert answer.judge(2, exact=True) is Status.OK


def test_times_of_nothing_are_nan() -> None:
    assert math.isnan(Answer().first_s)


# HTTP


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes, int]:
    """A response, its body and its status."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    status = draw(st.sampled_from([200, 400, 503]))
    body = b"".join(pieces)
    head = b"HTTP/1.1 %d Whatever\r\nX-Thing: 1\r\n" % status
    if draw(st.booleans()):
        head = b"HTTP/1.1 100 Continue\r\n\r\n" + head
    if draw(st.booleans()):
        return head + b"content-length: %d\r\n\r\n" % len(body) + body, body, status
    chunks = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    trailer = draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"]))
    coded = b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"
    return head + coded, body, status


@given(responses(), CUTS)
def test_responses_are_the_same_however_the_bytes_are_cut(
    response: tuple[bytes, bytes, int], places: list[int]
) -> None:
    data, body, status = response
    reader = ResponseReader()
    pieces = cut(data, places)
    got = []
    for piece in pieces:
        assert not reader.done
        got.append(reader.feed(piece))
    assert b"".join(got) == body
    assert (reader.done, reader.status, reader.keep_alive) == (True, status, True)


@settings(max_examples=120)
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n", b"0\r\n"])))
def test_random_bytes_are_a_response_or_a_protocol_error(pieces: list[bytes]) -> None:
    reader = ResponseReader()
    try:
        for piece in pieces:
            reader.feed(piece)
    except ProtocolError:
        pass
    reader.close()


@settings(max_examples=120)
@given(
    st.lists(
        st.binary(max_size=30) | st.sampled_from([b"5\r\nhello\r\n", b"0\r\n\r\n", b"-1\r\n", b"zz\r\n"])
    )
)
def test_random_chunks_are_a_body_or_a_protocol_error(pieces: list[bytes]) -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        for piece in pieces:
            reader.feed(piece)
    except ProtocolError:
        pass
    assert reader.status == 200


def test_a_body_that_ends_with_the_connection() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nhel") == b"hel"
    assert reader.feed(b"lo") == b"lo"
    assert not reader.done
    assert reader.close()
    assert not reader.keep_alive


def test_a_response_cut_short_is_not_complete() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    assert not reader.close()
    assert reader.began


def test_close_is_heeded() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert reader.done
    assert not reader.keep_alive
