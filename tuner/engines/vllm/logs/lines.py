"""From the raw text of a log to clean pieces: colour codes, carriage returns, container wrappers and vLLM's
own prefixes taken off, lines that two processes wrote into each other taken apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from os.path import commonprefix
from pathlib import Path

MAX_LINE = 1 << 16
"""Characters of a line that are looked at in one go; a longer line is read as several."""
HEAD_BYTES, TAIL_BYTES = 64 << 20, 256 << 20
"""What is read of a log file that is larger than both together."""

_ANSI = re.compile(
    r"(?:\x1b|\^\[|\\u001b|\\x1b|\\033|#033)\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[@-Z\\-_]"
)
_SOURCE = r"\((?P<source>[A-Za-z][\w .=:-]{0,48}?)[ _]pid=(?P<pid>\d+)(?:, ip=[\d.:a-f]+)?\)"
_HEADER = (
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\s+(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?"
    r"(?:\s+\[[^\]\s]{1,160}\]|\s+[\w./-]{1,120}:\d+\])?[ ]?"
)
_START = re.compile(
    rf"{_SOURCE}(?:[ ]*{_HEADER})?[ ]?|{_HEADER.replace('level', 'bare').replace('stamp', 'at')}"
)
_DATE = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")
_UVICORN = re.compile(r"(?:^|\s)(DEBUG|INFO|WARNING|ERROR|CRITICAL):\s{2,}")
_LOGGING = re.compile(r"\s-\s(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s-\s")
_GLOG = re.compile(r"\[([IWEF])\d{3,4} \d\d:\d\d:\d\d|\[([IWEF]) [\w./]+\.(?:cpp|cc|cu|h):\d+")
_ISO = re.compile(r"\d{4}-(\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_PYTHON_WARNING = re.compile(r"\b(?:User|Future|Deprecation|Runtime|Resource)Warning: ")
_JSON_FIELDS = ("log", "message", "MESSAGE", "msg", "textPayload", "line")


class Level(IntEnum):
    """How serious a line says it is; NONE where it says nothing (tracebacks, other programs)."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    NONE = 35
    ERROR = 40


_LEVELS = {"D": Level.DEBUG, "I": Level.INFO, "W": Level.WARNING, "E": Level.ERROR, "C": Level.ERROR}
_LEVELS["F"] = Level.ERROR


@dataclass(frozen=True, slots=True)
class Piece:
    """One message, or a part of one. `stamp` is seconds within a leap year, `iso` the same from a container's
    time stamp.
    """

    body: str
    level: Level = Level.NONE
    source: str = ""
    stamp: float | None = None
    iso: float | None = None


_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
YEAR_S = 366 * 86400.0


def seconds_of(date: str, time: str) -> float | None:
    """Seconds since the year began, of "11-30" and "16:39:02"; None where it is no date."""
    month, day = int(date[:2]), int(date[3:])
    if not 1 <= month <= 12:
        return None
    hours, minutes, seconds = (int(part) for part in time.split(":"))
    return (_DAYS_BEFORE[month - 1] + day) * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds


def pieces(raw: Iterable[str | bytes]) -> Iterator[Piece]:
    """The pieces of a log's lines, one after the other; holds no more than one line."""
    for chunk in raw:
        text = chunk.decode("utf-8", "replace") if isinstance(chunk, bytes) else chunk
        for line in _physical(text):
            yield from _split(line)


def _physical(text: str) -> Iterator[str]:
    """Lines of a chunk: container JSON unwrapped, every part of an overwritten progress bar, at most "
    "MAX_LINE."""
    if text[:1] in "{ " and text.lstrip()[:1] == "{":
        text = _unwrap(text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    if "[" in text:
        text = _ANSI.sub("", text)
    if len(text) <= MAX_LINE and "\r" not in text and "\n" not in text[:-1]:
        yield text
        return
    for part in re.split(r"[\r\n]+", text):
        for begin in range(0, len(part), MAX_LINE):
            yield part[begin : begin + MAX_LINE]


def _unwrap(text: str) -> str:
    try:
        record = json.loads(text)
    except ValueError:
        return text
    if isinstance(record, dict):
        for name in _JSON_FIELDS:
            value = record.get(name)
            if isinstance(value, str):
                stamp = record.get("time") or record.get("timestamp") or ""
                return f"{stamp} {value}" if isinstance(stamp, str) else value
    return text


def _split(line: str) -> Iterator[Piece]:
    if line.startswith("INFO:  "):  # uvicorn's, one a request
        yield Piece(line.rstrip(), Level.INFO)
        return
    iso = _ISO.search(line, 0, 120) if line[:1].isdigit() or "T" in line[:120] else None
    at = seconds_of(iso[1], iso[2]) if iso else None
    starts = _starts(line)
    if not starts:
        yield Piece(line.rstrip(), _level(line), iso=at)
        return
    head = line[: starts[0].start()]
    if head.strip():
        yield Piece(head.rstrip(), _level(head), iso=at)
    ends = [match.start() for match in starts[1:]] + [len(line)]
    for match, end in zip(starts, ends, strict=True):
        body = line[match.end() : end].rstrip()
        name, stamp = match["level"] or match["bare"], match["stamp"] or match["at"]
        source = f"{match['source']} {match['pid']}" if match["source"] else ""
        level = _LEVELS[name[0]] if name else _level(body)
        when = seconds_of(*stamp.split(" ")) if stamp else None
        yield Piece(body, level, source, when, at)


_STAMPED = re.compile(r"^\S*\d\d:\d\d:\d\d\S*\s+(?:std(?:out|err) [FP] )?")


def continued(first: str, body: str) -> str:
    """A further line of a message without what a container wrote before both of them."""
    first, body = _STAMPED.sub("", first), _STAMPED.sub("", body)
    same = commonprefix((first, body))
    cut = next((i for i in range(len(same), 0, -1) if not same[i - 1].isalnum()), 0)
    return body[cut:].strip()


def _starts(line: str) -> list[re.Match[str]]:
    """Where messages begin in a line: mostly once, at its beginning."""
    first = _START.match(line)
    begin = first.end() if first else 0
    if line.find("pid=", begin) < 0 and _DATE.search(line, begin) is None:
        return [first] if first else []
    return ([first] if first else []) + list(_START.finditer(line, begin))


def _level(text: str) -> Level:
    """The level of a line without vLLM's header: uvicorn's, glog's, Python's warnings."""
    if "  " in text and (match := _UVICORN.search(text, 0, 200)):
        return _LEVELS[match[1][0]]
    if " - " in text and (match := _LOGGING.search(text, 0, 200)):
        return _LEVELS[match[1][0]]
    if "[" in text and (match := _GLOG.search(text, 0, 200)):
        return _LEVELS[match[1] or match[2]]
    if "Warning: " in text and _PYTHON_WARNING.search(text):
        return Level.WARNING
    return Level.NONE


def lines_of_file(path: Path, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> Iterator[str | bytes]:
    """Lines of a log file, at most MAX_LINE characters at a time; of a file that is larger than head and tail
    together only these, for a cause stands near one of them.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as raw:
        if raw.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            with path.open(encoding="utf-16", errors="replace", newline="") as stream:
                while line := stream.readline(MAX_LINE):
                    yield line
            return
        size = raw.seek(0, 2)
        raw.seek(0)
        while piece := raw.readline(MAX_LINE):
            yield piece
            if size > head + tail and head <= raw.tell() < size - tail:
                raw.seek(size - tail)
                raw.readline(MAX_LINE)  # the rest of a line that began in the part passed over
