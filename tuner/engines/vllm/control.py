"""Small blocking requests to a local server: the control plane, not the replay."""

from __future__ import annotations

import http.client
import json
from typing import Any


def request(port: int, path: str, *, method: str = "GET", timeout_s: float = 5.0) -> tuple[int, str]:
    """Status and body; (0, "") where the server does not answer in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def models(port: int) -> list[dict[str, Any]]:
    """The entries of /v1/models; [] where it does not answer."""
    status, body = request(port, "/v1/models")
    if status != 200:
        return []
    try:
        entries = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]
