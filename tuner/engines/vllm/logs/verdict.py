"""From what was seen of a start to what is said of it: up, failed and why, or cut off."""

from __future__ import annotations

from tuner.engines.base import Bound, FailureKind
from tuner.engines.vllm.logs.lines import YEAR_S
from tuner.engines.vllm.logs.pattern import CONSEQUENCE, Explained, Found
from tuner.engines.vllm.logs.report import LogReport
from tuner.engines.vllm.logs.start import PATTERNS, Hit, Start

_NEAR = 5000
"""Messages before a death within which its cause is looked for: earlier ones belong to single requests."""
_AT_RUN_TIME = frozenset(
    {
        FailureKind.OOM,
        FailureKind.HOST_MEMORY,
        FailureKind.SHARED_MEMORY,
        FailureKind.DRIVER,
        FailureKind.ENGINE_DEAD,
        FailureKind.HUNG,
        FailureKind.PORT,
        FailureKind.UNKNOWN,
    }
)
"""What can kill a server that was up; messages of other kinds are answers to requests."""
_STILL_WAITING, _STILL_RUNNING = 3, 6
"""Statistics in a row, ten seconds apart, without a token: requests only wait, or run."""
_UNKNOWN_MEND = "the log reader does not know this failure: look at the lines around it"


def judge(start: Start) -> LogReport:
    """What the log says of this start."""
    kind, explained = _verdict(start)
    figures = start.figures
    return LogReport(
        ready=kind is None,
        kind=kind,
        cause=explained.cause,
        mend=explained.mend,
        bounds=explained.bounds,
        kv_tokens=figures.kv_tokens,
        weights_gib=figures.weights_gib,
        startup_s=_startup_s(start),
        available_kv_gib=figures.available_kv_gib,
        graph_gib=figures.graph_gib,
        max_concurrency=figures.max_concurrency,
        version=figures.version,
        args=figures.args,
        effective=figures.effective,
        phase=start.mark.phase if start.mark else "",
        phases=figures.phases,
        served=start.served,
    )


def _verdict(start: Start) -> tuple[FailureKind | None, Explained]:
    # What a process says behind its own "failed to start" is told before what was said earlier.
    after = start.failed or 0
    hits = [
        (hit.rank, hit.at < after, hit.at, index)
        for index, hit in start.hits.items()
        if _counts(start, hit, index)
    ]
    thrown = start.exception()
    true_exception = thrown is not None and thrown.strength == 2
    if hits and not (min(hits)[0] >= CONSEQUENCE and true_exception and start.died is None):
        return _known(start, min(hits)[3])
    if start.died is None and start.still >= (_STILL_RUNNING if start.running else _STILL_WAITING):
        return FailureKind.HUNG, _stands_still(start)
    if start.died is None and (start.served or (start.listening_at is not None and start.stopping is None)):
        return None, Explained("")
    if start.died is not None and (start.served or start.failed is None):
        when = "while it served" if start.served else "before it was ready"
        why = f": {thrown}" if thrown is not None and thrown.strength else ""
        return FailureKind.ENGINE_DEAD, Explained(
            f"the engine died {when}{why}", "look at the first traceback above its death; try another vLLM"
        )
    if thrown is not None and not (start.stopping is not None and thrown.strength < 2):
        if thrown.strength:
            return FailureKind.UNKNOWN, Explained(str(thrown), _UNKNOWN_MEND)
        return FailureKind.UNKNOWN, Explained(
            "the log holds no cause, only that the engine did not start",
            "give the whole log: the cause stands above; if nothing does, a process was killed (dmesg)",
        )
    return _cut_off(start)


def _counts(start: Start, hit: Hit, index: int) -> bool:
    """Whether a known failure's message has to do with the end of this start."""
    pattern = PATTERNS[index]
    if not hit.served:
        # It came up after that message, or was asked to stop before it.
        return not start.served and not (
            pattern.death and start.stopping is not None and hit.at > start.stopping
        )
    if pattern.always:
        return True
    return start.died is not None and hit.at >= start.died - _NEAR and pattern.kind in _AT_RUN_TIME


def _known(start: Start, index: int) -> tuple[FailureKind, Explained]:
    hit, pattern = start.hits[index], PATTERNS[index]
    kind = pattern.kind
    if hit.served and (
        kind is FailureKind.UNKNOWN
        or (kind is FailureKind.HOST_MEMORY and pattern.death and not pattern.always)
    ):
        # A kill of a server that was up has many senders; only the kernel's own word makes it memory.
        kind = FailureKind.ENGINE_DEAD
    match = pattern.line.regex.search(hit.text) if pattern.wrapped else None
    return kind, pattern.explain(Found(match or hit.match, hit.before, hit.phase, hit.served, start.figures))


def _cut_off(start: Start) -> tuple[FailureKind, Explained]:
    if start.mark is None:
        what = "the log is empty" if start.pieces == 0 else "the log holds no start of vLLM and no exception"
        return FailureKind.UNKNOWN, Explained(what, "give the whole stdout and stderr of the server")
    mark, kernels = start.mark, start.figures.silent_kernels
    if start.stopping is not None:
        return FailureKind.STARTUP_TIMEOUT, Explained(
            f"it was stopped from outside while {mark.phase}", "give it more time"
        )
    cause = f"the log ends during start-up, while {mark.phase}"
    if kernels and "compil" in mark.phase:
        return FailureKind.STARTUP_TIMEOUT, Explained(
            f"{cause}: {kernels} kernels are compiled on first use, for minutes and without a line; "
            "that is no hang",
            "give it more time (the result is cached for the next start), or set moe-backend to triton, "
            "which needs none",
        )
    return mark.kind, Explained(
        cause, mark.mend or "give it more time; if it uses no CPU meanwhile, it hangs"
    )


def _stands_still(start: Start) -> Explained:
    tokens = start.figures.kv_tokens
    if start.running or not tokens:
        return Explained(
            f"{start.running} requests run and {start.waiting} wait, and no token comes",
            "a kernel or a rank hangs: look at its last line; py-spy dump shows where it stands",
        )
    return Explained(
        f"{start.waiting} requests wait and none runs: the first needs more than {tokens} tokens of KV cache",
        f"lower max-model-len to {tokens} or less, so that such requests are refused at once",
        (Bound("max-model-len", max=tokens),),
    )


def _startup_s(start: Start) -> float | None:
    begin = start.first if start.first is not None else start.first_iso
    end = start.ready_at if start.ready_at is not None else start.listening_at
    return None if end is None or begin is None or not start.whole else round((end - begin) % YEAR_S, 3)
