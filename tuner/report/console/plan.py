"""The plan, shown before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.report.words import flag_value, percent, rate, span
from tuner.study.records import Plan

SIMULATED = "SIMULATED"


def plan_lines(plan: Plan) -> Iterator[str]:
    """The plan as plain lines within 100 columns."""
    mark = f"{SIMULATED}: no GPU is used, every figure is a prediction" if plan.engine == "sim" else ""
    limits = ", ".join(_limit(name, value) for name, value in plan.slo.items())
    yield f"kimi-tune: {plan.model} on {plan.gpu}, {limits}" + (f"  [{mark}]" if mark else "")
    yield f"  study     {plan.study}"
    yield f"  engine    {'vLLM' if plan.engine == 'vllm' else 'simulator of vLLM'} {plan.vllm_version}"
    yield f"  trace     {plan.trace} ({rate(plan.trace_rps)} requests/s as recorded)"
    for note in plan.trace_notes:
        yield f"            {note}"
    yield f"  space     {len(plan.parameters)} flags, {percent(plan.feasible_share)} of it can start"
    for name, text in plan.parameters.items():
        yield f"            {name:24s} {text}"
    for name, value in plan.fixed.items():
        yield f"            {name:24s} {flag_value(value)} (fixed)"
    if plan.coverage:
        shares = ", ".join(f"{length:,} holds {percent(share)}" for length, share in plan.coverage.items())
        yield f"  coverage  max-model-len {shares} of the trace"
    if plan.budget_s is not None and plan.budget_trials is not None:
        yield (
            f"  budget    {span(plan.budget_s)} of engine time: about {min(plan.budget_trials, plan.trials)}"
            " launches of the search, the rest for the finals"
        )
    yield (
        f"  search    at most {plan.trials} launches ({plan.sampler}),"
        f" then at most {plan.finals} for the finals on a part of the trace that the search did not see"
    )
    engine_time = f"about {span(plan.engine_s)} of engine time"
    yield (
        f"  time      {f'seconds here, {engine_time} on a GPU' if plan.engine == 'sim' else engine_time}:"
        f" {span(plan.launch_s)} a launch,"
        f" {plan.requests:,} requests and about {span(plan.replay_s)} a replay"
    )
    for note in plan.notes:
        yield f"  note      {note}"


def _limit(name: str, value: float) -> str:
    words = {"e2e_p99_s": "P99 end to end", "ttft_p99_s": "P99 to first token", "tpot_p99_s": "P99 a token"}
    return f"{words.get(name, name)} <= {value:g} s"
