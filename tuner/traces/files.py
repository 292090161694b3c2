"""Trace files on disk: plain, gzip or zstandard (told by their first bytes), read in whole lines."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tuner.errors import BadRequest

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
CHUNK_BYTES = 2 << 20
MAX_LINE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One trace file; every error that it raises names the file."""

    path: Path

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line that is not blank, stripped, with its number from 1.

        Raises:
            BadRequest: unreadable, cut off, or compressed in a way that is not supported here.
        """
        number = 0
        with self._opened() as stream:
            for raw in stream:
                number += 1
                line = raw.strip()
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line:
                    yield number, line

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[tuple[int, bytes]]:
        """The file in pieces of about `size` bytes that end at a line's end, with their first line's number.

        Raises:
            BadRequest: as for `lines`.
        """
        number, rest = 1, b""
        with self._opened() as stream:
            while data := stream.read(size):
                cut = data.rfind(b"\n") + 1
                if not cut:
                    rest += data
                    if len(rest) > MAX_LINE_BYTES:
                        raise self.error(number, "the line is longer than 256 MiB")
                    continue
                piece, rest = rest + data[:cut], data[cut:]
                yield number, piece
                number += piece.count(b"\n")
        if rest:
            yield number, rest + b"\n"

    def error(self, line: int, problem: str, mend: str = "") -> BadRequest:
        """A BadRequest that names file and line."""
        return BadRequest(f"{self.path.name}, line {line}: {problem}", mend)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        path = self.path
        try:
            with path.open("rb") as raw:
                magic = raw.read(4)
                raw.seek(0)
                if magic.startswith(GZIP_MAGIC):
                    with gzip.open(raw) as stream:
                        yield cast(IO[bytes], stream)
                elif magic == ZSTD_MAGIC:
                    yield _zstd_reader(raw, path)
                else:
                    yield raw
        except FileNotFoundError:
            raise BadRequest(f"{path}: no such file", "give the path of a trace file") from None
        except IsADirectoryError:
            raise BadRequest(f"{path}: is a folder", "give the path of a trace file in it") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadRequest(
                f"{path.name}: the compressed file is damaged ({error})", "copy it again"
            ) from None
        except (OSError, ValueError) as error:
            raise BadRequest(f"{path}: cannot be read ({error})") from None


def _zstd_reader(raw: IO[bytes], path: Path) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        mend = "pip install zstandard, or unpack the file first"
        raise BadRequest(f"{path.name}: is compressed with zstandard, which is not installed", mend) from None
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return cast(IO[bytes], io.BufferedReader(_ZstdRaw(reader)))


class _ZstdRaw(io.RawIOBase):
    """A zstandard stream as a raw file; its own error type becomes an OSError."""

    def __init__(self, reader: IO[bytes]) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            data = self._reader.read(len(buffer))
        except Exception as error:  # zstandard.ZstdError, known only where the package is
            raise OSError(f"damaged zstandard data: {error}") from None
        buffer[: len(data)] = data
        return len(data)
