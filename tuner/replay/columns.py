"""The record of a replay while it grows, and what makes a finished one invalid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.masking import mask
from tuner.replay.lag import lag_fault, lag_limit_s
from tuner.replay.options import ClientOptions
from tuner.replay.prompts import Lengths
from tuner.replay.records import Replay, Status, Workload
from tuner.replay.stop import Curtailment

ERROR_KINDS = 40
_CPU_SHARE = 0.95
_LISTS = ("scheduled", "sent", "first", "last", "tokens", "first_tokens", "prompt_tokens", "status")


class Columns:
    """One value a request in plain lists (a write costs a fifth of numpy's); times are seconds since the
    begin.
    """

    def __init__(self, workload: Workload) -> None:
        trace = workload.trace
        n = len(trace)
        self.scheduled: list[float] = [math.nan] * n
        if workload.users is None and n:
            self.scheduled = (trace.arrival_s - trace.arrival_s[0]).tolist()
        self.sent = [math.nan] * n
        self.first = [math.nan] * n
        self.last = [math.nan] * n
        self.tokens = [0] * n
        self.first_tokens = [0] * n
        self.prompt_tokens = [-1] * n
        self.status = [int(Status.UNFINISHED)] * n
        self.errors: Counter[str] = Counter()
        self.estimated = False
        self.stopped = False
        self.fault: str | None = None
        self.cpu_share = 0.0

    def error(self, why: str) -> None:
        """Count an error, a limited number of kinds apart; what a server echoes may hold a key."""
        why = mask(why)
        if len(self.errors) >= ERROR_KINDS and why not in self.errors:
            why = "other errors"
        self.errors[why] += 1

    def part(self, indices: NDArray[np.int64]) -> dict[str, Any]:
        """What a process that sent these requests has to tell."""
        lists = {name: np.asarray(getattr(self, name))[indices] for name in _LISTS}
        return lists | {
            "errors": dict(self.errors),
            "estimated": self.estimated,
            "fault": self.fault,
            "cpu_share": self.cpu_share,
        }

    def join(self, indices: NDArray[np.int64], part: Mapping[str, Any]) -> None:
        """Take in the requests of another process."""
        for name in _LISTS:
            mine = getattr(self, name)
            for index, value in zip(indices.tolist(), part[name].tolist(), strict=True):
                mine[index] = value
        for why, count in part["errors"].items():
            self.errors[why if why in self.errors or len(self.errors) < ERROR_KINDS else "other errors"] += (
                count
            )
        self.estimated |= part["estimated"]
        self.fault = self.fault or part["fault"]
        self.cpu_share = max(self.cpu_share, part["cpu_share"])

    def replay(
        self,
        workload: Workload,
        options: ClientOptions,
        stop: Curtailment | None,
        *,
        engine_s: float = 0.0,
        lengths: Lengths = Lengths.UNKNOWN,
        counters: Mapping[str, float] | None = None,
    ) -> Replay:
        """The finished record. `lengths` says how well the prompts' token counts are known beforehand."""
        trace = workload.trace
        counted = [count for count in self.prompt_tokens if count >= 0]
        own = {"client_cpu_share": self.cpu_share}
        if counted:
            own["usage_prompt_tokens"] = float(sum(counted))
        return Replay(
            scheduled_s=np.asarray(self.scheduled, dtype=np.float64),
            sent_s=np.asarray(self.sent, dtype=np.float64),
            first_s=np.asarray(self.first, dtype=np.float64),
            last_s=np.asarray(self.last, dtype=np.float64),
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            tokens=np.asarray(self.tokens, dtype=np.int32),
            first_tokens=np.asarray(self.first_tokens, dtype=np.int32),
            status=np.asarray(self.status, dtype=np.int8),
            offered_rps=workload.offered_rps if len(trace) else 0.0,
            engine_s=engine_s,
            users=workload.users,
            stopped=self.stopped,
            tokens_estimated=self.estimated,
            invalid_reason=self._invalid(workload, options, stop, lengths),
            counters={**own, **(counters or {})},
            errors=dict(self.errors),
        )

    def _invalid(
        self, workload: Workload, options: ClientOptions, stop: Curtailment | None, lengths: Lengths
    ) -> str | None:
        if self.fault is not None:
            return self.fault
        if workload.users is None:
            lag = np.asarray(self.sent) - np.asarray(self.scheduled)
            fault = lag_fault(lag, lag_limit_s(options.slo_smallest_s, stop))
            if fault is not None:
                return fault
        if self.cpu_share > _CPU_SHARE:
            return f"the client was the bottleneck: it used {self.cpu_share:.0%} of a CPU"
        return self._length_fault(workload, lengths)

    def _length_fault(self, workload: Workload, lengths: Lengths) -> str | None:
        """Prompts that the server counts otherwise than the trace make another workload."""
        counted = np.asarray(self.prompt_tokens)
        known = counted >= 0
        if lengths is Lengths.UNKNOWN or not known.any():
            return None
        wanted = int(workload.trace.input_tokens[known].sum(dtype=np.int64))
        got = int(counted[known].sum())
        # a token a request for what a server puts in front, and for rounding to words
        allowed = (0.01 if lengths is Lengths.EXACT else 0.1) * wanted + 2 * int(known.sum())
        if abs(got - wanted) <= allowed:
            return None
        return f"the server counted {got:,} prompt tokens where the trace has {wanted:,}"
