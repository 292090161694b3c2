"""Prefix blocks as salted hashes: equal numbers for equal starts of prompts, and no way back to the text."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator

import numpy as np

from tuner.errors import BadRequest
from tuner.traces.formats.texts import CHARS_A_TOKEN

MIN_BLOCK, MAX_BLOCK = 16, 512
_ID_BITS = 53  # what every JSON reader keeps exactly


class PrefixBlocks:
    """Numbers the blocks of prompts. Without `salt` a random one, kept nowhere: files of different recorders
    then have no number in common.

    Raises:
        BadRequest: a block size outside 16 to 512 tokens.
    """

    def __init__(self, block_tokens: int, salt: str | None = None) -> None:
        if not MIN_BLOCK <= block_tokens <= MAX_BLOCK:
            raise BadRequest(
                f"blocks of {block_tokens} tokens", f"take {MIN_BLOCK} to {MAX_BLOCK}, as coarse as is useful"
            )
        self.block_tokens = block_tokens
        secret = secrets.token_bytes(32) if salt is None else salt.encode()
        self._key = hashlib.blake2b(secret, digest_size=32).digest()

    def ids(self, prompt: str | list[int], tokens: int) -> list[int]:
        """ceil(`tokens` / block size) block numbers; each stands for the prompt up to its block's end.

        A text is cut at 4 characters a token. Where it is longer than its tokens say, the last block stands
        for all that is left; where it is shorter, blocks follow that only the same prompt has.
        """
        count = -(-tokens // self.block_tokens)
        running = hashlib.blake2b(digest_size=8, key=self._key)
        ids: list[int] = []
        for piece in self._pieces(prompt, count):
            running.update(piece)
            ids.append(int.from_bytes(running.digest(), "big") >> (64 - _ID_BITS))
        return ids

    def label(self, name: str) -> str:
        """A name (of a session, say) as a salted hash."""
        return hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key
        ).hexdigest()

    def _pieces(self, prompt: str | list[int], count: int) -> Iterator[bytes]:
        """What each block adds to the hash; the marks keep a short block apart from a full one."""
        if isinstance(prompt, str):
            step = CHARS_A_TOKEN * self.block_tokens
            for index in range(count):
                last = index == count - 1
                piece = prompt[index * step :] if last else prompt[index * step : (index + 1) * step]
                mark = b"\x00" if len(piece) == step else b"\x01" if piece else b"\x02"
                yield piece.encode("utf-8", "surrogatepass") + mark
            return
        step = 8 * self.block_tokens
        raw = np.asarray(prompt, dtype="<i8").tobytes()
        for index in range(count):
            piece_of_ids = raw[index * step : (index + 1) * step]
            yield piece_of_ids + (b"\x00" if len(piece_of_ids) == step else b"\x01")
