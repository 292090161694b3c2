"""From the raw text of a log to clean pieces: colour codes, carriage returns, container wrappers and vLLM's
own prefixes taken off, lines that two processes wrote into each other taken apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MAX_LINE = 1 << 16
"""Characters of a line that are looked at in one go; a longer line is read as several."""

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
_UVICORN = re.compile(r"(?:^|\s)(DEBUG|INFO|WARNING|ERROR|CRITICAL):\s{2,}")
_LOGGING = re.compile(r"\s-\s(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s-\s")
_GLOG = re.compile(r"\[([IWEF])\d{4} \d\d:\d\d:\d\d|\[([IWEF]) [\w./]+\.(?:cpp|cc|cu|h):\d+")
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
    if text.lstrip()[:1] == "{":
        text = _unwrap(text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    if "[" in text:
        text = _ANSI.sub("", text)
    for part in re.split(r"[\r\n]+", text) if "\r" in text or "\n" in text[:-1] else (text.rstrip("\n"),):
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
    iso = _ISO.search(line, 0, 120)
    at = seconds_of(iso[1], iso[2]) if iso else None
    starts = list(_START.finditer(line)) if "pid=" in line or "-" in line else []
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


def lines_of_file(path: Path) -> Iterator[str]:
    """Lines of a log file, at most MAX_LINE characters at a time; bytes that are no UTF-8 are replaced.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as raw:
        encoding = "utf-16" if raw.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    with path.open(encoding=encoding, errors="replace", newline="") as stream:
        while line := stream.readline(MAX_LINE):
            yield line
