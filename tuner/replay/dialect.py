"""Which prompts and fields a server takes, found out by asking it: short requests before a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuner.replay.options import ClientOptions, Endpoint
from tuner.replay.prompts import TextScale, drawn_words
from tuner.replay.server import BaseUrl, refused, request

_TIMEOUT_S = 120.0
_IDS = (100, 200, 300, 400, 500, 600, 700, 800)
_WORDS = ((40, 240), (4, 24))
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_UNKNOWN_FIELD = (400, 422)


def settle(base_url: str, model: str, options: ClientOptions) -> ClientOptions:
    """The options with what was left open decided by the server.

    Token ids to /v1/completions where it takes them and counts them as we do, else chat; `ignore_eos` where
    it does not refuse the field.

    Raises:
        BadRequest, EngineUnavailable: neither works.
    """
    if options.endpoint is not Endpoint.AUTO:
        return options
    url = BaseUrl.parse(base_url)
    for ignore_eos in (True, False) if options.ignore_eos else (False,):
        status, answer = _ask(url, _COMPLETIONS, model, {"prompt": list(_IDS)}, ignore_eos)
        if status in (401, 403):
            raise refused(url, status, answer, _COMPLETIONS)
        counted = _prompt_tokens(answer)
        if status == 200 and (counted is None or abs(counted - len(_IDS)) <= 1):
            return replace(options, endpoint=Endpoint.COMPLETIONS, ignore_eos=ignore_eos)
    for ignore_eos in (True, False) if options.ignore_eos else (False,):
        status, answer = _chat(url, model, _WORDS[-1][0], ignore_eos)
        if status == 200:
            return replace(options, endpoint=Endpoint.CHAT, ignore_eos=ignore_eos)
        if status not in _UNKNOWN_FIELD:
            break
    raise refused(url, status, answer, _CHAT)


def measure_text(base_url: str, model: str) -> TextScale:
    """How the server counts drawn words in a chat, by its own usage; one token a word where it says nothing.

    Raises:
        BadRequest, EngineUnavailable: it does not answer.
    """
    url = BaseUrl.parse(base_url)
    for sizes in _WORDS:
        answers = [_chat(url, model, words, False) for words in sizes]
        if all(status == 200 for status, _ in answers):
            break  # a long probe may be more than a small context holds
    else:
        status, answer = next((status, answer) for status, answer in answers if status != 200)
        raise refused(url, status, answer, _CHAT)
    few, many = (_prompt_tokens(answer) for _, answer in answers)
    if few is None or many is None or many <= few:
        return TextScale()
    per_word = (many - few) / (sizes[1] - sizes[0])
    return TextScale(overhead=few - per_word * sizes[0], per_word=per_word)


def _chat(url: BaseUrl, model: str, words: int, ignore_eos: bool) -> tuple[int, Any]:
    content = drawn_words(words, seed=words)
    return _ask(url, _CHAT, model, {"messages": [{"role": "user", "content": content}]}, ignore_eos)


def _ask(url: BaseUrl, path: str, model: str, prompt: dict[str, Any], ignore_eos: bool) -> tuple[int, Any]:
    body = {"model": model, **prompt, "max_tokens": 1, "temperature": 0}
    if ignore_eos:
        body["ignore_eos"] = True
    return request(url, "POST", path, body, _TIMEOUT_S)


def _prompt_tokens(answer: Any) -> int | None:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) else None
