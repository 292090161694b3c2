"""Python exceptions in a log: which are true causes, which are wrappers around them, which merely "
"followed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.engines.vllm.logs.probe import probe

_NAME = (
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Expired|Timeout|Interrupt|Exit|OutOfResources"
    r"|Unsupported|Failure"
    r"|Group|Empty|Full)|(?:[a-z_]\w*\.)+[A-Z]\w*|Exception)"
)
_WITH_TEXT = re.compile(
    rf"(?:^|(?<=[\s|>\]]))(?<!except )(?<!raise )(?P<name>{_NAME})(?:\([\w.]+\))?: (?P<text>\S.*)$"
)
_BARE = re.compile(
    rf"(?:^|(?<=[\]|>:]\s)|(?<=\s))(?<!except )(?<!raise )(?<!as )(?<!import )(?<!class "
    rf")(?P<name>{_NAME}):?$"
)
_HINTS = (
    "Error",
    "Exception",
    "Expired",
    "Timeout",
    "Interrupt",
    "Exit",
    "Resources",
    "Unsupported",
    "Empty",
    ".",
)

_WRAPPERS = re.compile(
    r"See root cause above|Engine core initialization failed|WorkerProc initialization failed|See stack "
    r"trace (?:above )?for"
    r"|Engine process failed to start|failed to start\. See|Failed core proc|EngineCore encountered an "
    r"issue"
    r"|Executor failed|Worker failed with error |Engine core proc \S+ died|died unexpectedly, shutting"
    r"|Background loop (?:has errored"
    r"|is stopped|is not running)"
    r"|Task finished unexpectedly|Cancelled by cancel scope|cancelled by"
    r"|has no attribute '(?:workers|_?shutdown|engine_core|output_handler|resources|model_executor"
    r"|driver_worker|rpc_broadcast_mq|_finalizer)'"
    r"|leaked (?:semaphore|shared_memory)|generator didn't|Event loop is closed|EngineDead|MQLLMEngine"
)
_INNER = re.compile(r"Worker failed with error '(.+)', please check")
_WRAPPER_NAMES = re.compile(
    r"(?:Async)?Engine(?:Dead|GenerateE?)Error|EngineDeadError|MQEngineDeadError|ActorDiedError"
    r"|ExceptionGroup"
)
_WEAK_NAMES = re.compile(
    r"(?:^|\.)(?:KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|EOFError|ConnectionResetError"
    r"|StopAsyncIteration"
    r"|ConnectionError|TimeoutError|ClientDisconnect|GeneratorExit|ProcessLookupError|CalledProcessError"
    r"|ChildFailedError|ModuleNotFoundError"
    r"|ImportError)$"
)


@dataclass(frozen=True, slots=True)
class Thrown:
    """An exception as a log shows it. `strength` 2: may be a cause; 1: mostly a consequence; 0: a "
    "wrapper."""

    name: str
    text: str
    strength: int

    @property
    def missing_module(self) -> bool:
        """Whether it says that something could not be imported."""
        return self.name.endswith(("ImportError", "ModuleNotFoundError"))

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


def thrown_in(body: str) -> Thrown | None:
    """The exception that ends a traceback in this message, or None."""
    if not any(hint in body for hint in _HINTS):
        return None
    match = _WITH_TEXT.search(body) or (_BARE.search(body) if len(body) < 300 else None)
    if match is None:
        return None
    name, text = match["name"], match.groupdict().get("text") or ""
    if (inner := _INNER.search(text)) is not None:
        return Thrown(name, inner[1], 1)
    if _WRAPPER_NAMES.search(name) or _WRAPPERS.search(text):
        return Thrown(name, text, 0)
    return Thrown(name, text, 1 if _WEAK_NAMES.search(name) else 2)


FAILED_START = probe(
    ("failed to start", "hit an exception", "Exception in worker"),
    r"(?:EngineCore|WorkerProc|Engine process|Worker|Engine core)\w* (?:failed to start|hit an exception)"
    r"|Exception in worker \w+ while processing method (?:init|load|determine)",
)
"""A process says that it failed; its traceback follows."""
DEATH = probe(
    (
        "fatal error",
        "EngineDead",
        " died",
        "already dead",
        "Background loop",
        "Task finished",
        "hit an exception",
        "Terminating server",
        "ActorDied",
        "Engine loop",
        "exit code",
    ),
    r"EngineCore encountered a fatal error|EngineDeadError|Engine core proc(?:ess)? \S* ?died"
    r"|Engine process \(pid \d+\) died|engine is already dead|Background loop has errored"
    r"|Task finished unexpectedly|died unexpectedly, shutting|EngineCore hit an exception|Terminating "
    r"server process"
    r"|ActorDiedError|Engine loop (?:is not running|has died)|process died with exit code|\bexit code: "
    r"?-\d+",
)
"""The engine, or a worker, is gone."""
