"""Replay: send a trace to a server and record what comes back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.replay.options import ClientOptions, Endpoint
from tuner.replay.records import Replay, Status, Workload
from tuner.replay.stop import Curtailment, OverWatch

if TYPE_CHECKING:
    from tuner.replay.client import replay_http
    from tuner.replay.dialect import settle
    from tuner.replay.mock import MockServer
    from tuner.replay.server import ServerInfo, check_server, choose_model

__all__ = [
    "ClientOptions",
    "Curtailment",
    "Endpoint",
    "MockServer",
    "OverWatch",
    "Replay",
    "ServerInfo",
    "Status",
    "Workload",
    "check_server",
    "choose_model",
    "replay_http",
    "settle",
]

# what speaks HTTP is imported when it is asked for: a simulated study needs none of it
_LATER = {
    "MockServer": "tuner.replay.mock",
    "ServerInfo": "tuner.replay.server",
    "check_server": "tuner.replay.server",
    "choose_model": "tuner.replay.server",
    "replay_http": "tuner.replay.client",
    "settle": "tuner.replay.dialect",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
