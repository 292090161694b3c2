"""From a request and its answer to the rows of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.traces.formats.texts import Conversations
from tuner.traces.recorder.answers import Answered, read_answer
from tuner.traces.recorder.blocks import PrefixBlocks
from tuner.traces.recorder.files import RowFiles
from tuner.traces.recorder.requests import Asked, Prompt, read_request

_CONVERSATIONS = 1 << 18


@dataclass(slots=True)
class Tally:
    """What was recorded so far, by requests to the server."""

    recorded: int = 0
    failed: int = 0
    estimated: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One finished generation request.

    `at_ms` is when it came, in milliseconds of the epoch. `status` is the upstream's, 0 where there was none;
    `error` says why there is no whole answer.
    """

    at_ms: float
    request: bytes
    request_headers: Mapping[str, str]
    status: int
    answer: bytes = b""
    content_type: str = ""
    encoding: str = ""
    error: str = ""


class RowMaker:
    """Writes exchanges into files as rows of the project's own format, without text unless `keep_text`."""

    def __init__(self, blocks: PrefixBlocks, files: RowFiles, *, keep_text: bool = False) -> None:
        self.tally = Tally()
        self._blocks, self._files, self._keep_text = blocks, files, keep_text
        self._conversations = Conversations(limit=_CONVERSATIONS)

    def add(self, exchange: Exchange) -> None:
        """Write one exchange."""
        error = exchange.error
        if not error and exchange.status != 200:
            error = f"HTTP {exchange.status}"
        answered = Answered()
        if not error:
            answered = read_answer(exchange.answer, exchange.content_type, exchange.encoding)
            error = answered.error
        asked = read_request(exchange.request, exchange.request_headers)
        if asked is None and not error:
            error = "the request cannot be read"
        self.tally.recorded += 1
        if error or asked is None:
            self.tally.failed += 1
            row: dict[str, Any] = {"timestamp": exchange.at_ms, "error": error}
            if exchange.status:
                row["status"] = exchange.status
            self._files.write(row)
            return
        estimated = False
        for prompt in asked.prompts:
            made = self._row(exchange.at_ms, asked, prompt, answered)
            estimated |= "estimated" in made
            self._files.write(made)
        self.tally.estimated += estimated

    def _row(self, at_ms: float, asked: Asked, prompt: Prompt, answered: Answered) -> dict[str, Any]:
        """One prompt's row; a batch shares its tokens out evenly where usage gives only their sum."""
        estimated = []
        inputs, whole = prompt.tokens, len(asked.prompts) == 1
        if answered.prompt_tokens is not None and whole:
            inputs = answered.prompt_tokens
        elif not prompt.exact:
            estimated.append("input_length")
        outputs = answered.output_tokens
        parts = len(asked.prompts) * asked.answers
        if outputs is None:
            outputs = answered.chunks
        if answered.output_tokens is None or parts > 1:
            estimated.append("output_length")
        row: dict[str, Any] = {
            "timestamp": at_ms,
            "input_length": inputs,
            "output_length": -(-outputs // parts),
            "hash_ids": self._blocks.ids(prompt.text, inputs),
        }
        if estimated:
            row["estimated"] = estimated
        session = self._session(asked, prompt)
        if session is not None:
            row["session_id"] = session
        if self._keep_text:
            chat = isinstance(prompt.recorded[0], dict)
            row["messages" if chat else "prompt"] = prompt.recorded
        return row

    def _session(self, asked: Asked, prompt: Prompt) -> str | int | None:
        """The session as the client names it (hashed), else the conversation that the messages go on with.
        Other prompts have none: readers find theirs from the blocks.
        """
        if asked.session is not None:
            return self._blocks.label(asked.session)
        if isinstance(prompt.recorded[0], dict):
            return self._conversations.follow(prompt.recorded)
        return None
