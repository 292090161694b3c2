"""`kimi-tune record`: a proxy in front of a server that writes the traffic as a trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import VerboseOption
from tuner.cli.output import console
from tuner.errors import BadRequest

if TYPE_CHECKING:
    from tuner.traces.recorder import Recorder, RowFiles

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def record(
    upstream: Annotated[str, typer.Option("--upstream", metavar="URL", help="The server to pass on to.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Trace to write: trace.jsonl.")],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to listen on 127.0.0.1; 0: any free one.")
    ] = 8001,
    rotate: Annotated[
        str | None,
        typer.Option("--rotate", metavar="SIZE", help="Go on in trace.1.jsonl, … after so much: 512MB."),
    ] = None,
    block_tokens: Annotated[
        int, typer.Option("--block-tokens", min=16, max=512, help="Tokens in a hashed prefix block.")
    ] = 64,
    salt: Annotated[
        str | None,
        typer.Option(
            "--salt",
            metavar="TEXT",
            envvar="KIMI_TUNE_SALT",
            help="Secret of the hashes, so that several files agree; default: random, kept nowhere.",
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Write prompts and messages too.")] = False,
    verbose: VerboseOption = False,
) -> int:
    """Pass requests on to a server and record them: when they came, their lengths, and which prefixes they
    share, as salted hashes. No text is written unless --text is given, and never an API key.

    Ctrl-C ends it. A file that is there is not overwritten.

    Example:

      kimi-tune record --upstream http://127.0.0.1:8000 --port 8001 --out trace.jsonl
    """
    from tuner.traces.recorder import record as run

    screen = console(to_stderr=True)

    def listening(recorder: Recorder, files: RowFiles) -> None:
        screen.print(
            f"recording {recorder.url} -> {recorder.upstream.shown} into {out}; Ctrl-C ends it",
            soft_wrap=True,
        )

    tally, files = run(
        upstream,
        out,
        port=port,
        block_tokens=block_tokens,
        salt=salt,
        rotate_bytes=size_of(rotate) if rotate is not None else None,
        keep_text=text,
        listening=listening,
    )
    if not tally.recorded:
        screen.print("no request came: nothing written")
        return 0
    noun = "request" if tally.recorded == 1 else "requests"
    parts = [f"{tally.recorded:,} {noun} recorded in {files.shown}"]
    if tally.failed:
        parts.append(f"{tally.failed:,} of them failed")
    if tally.estimated:
        parts.append(f"{tally.estimated:,} with estimated lengths (the answers carry no usage)")
    if files.lost:
        parts.append(f"{files.lost:,} lines LOST ({files.fault})")
    screen.print("; ".join(parts), soft_wrap=True)
    return 0


def size_of(text: str) -> int:
    """Bytes of a size such as 512MB.

    Raises:
        BadRequest: not a size above 0.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size <= 0:
        raise BadRequest(f"--rotate {text}: not a size", "write it like 512MB")
    return size
