"""Notes in Markdown: the recommendation for the study; what it was, the verdict and the cause for a trial."""

from __future__ import annotations

from tuner.report.content.comparison import comparison_section
from tuner.report.content.summary import summary
from tuner.report.content.trials import OUTCOMES
from tuner.report.content.view import View
from tuner.report.headline import study_headline
from tuner.report.page.blocks import Block, Items, Mono, Text, Words
from tuner.report.page.markdown import blocks_markdown, section_lines
from tuner.report.words import changes, duration, latency, rate, shown, span
from tuner.study.kept import KeptTrial

_ORIGINS = {
    "vllm-default": "vLLM's own defaults",
    "seed": "proposed by the simulator",
    "guide": "proposed by the simulator, calibrated on the launches so far",
}


def study_note(view: View) -> str:
    """The recommendation, its figures, and default against tuned."""
    head: list[Block] = [Text(study_headline(view.study) + "."), *summary(view)]
    text = blocks_markdown(head)
    section = comparison_section(view)
    return text + ("\n" + "\n".join(section_lines(section, 3)) if section is not None else "")


def trial_note(view: View, trial: KeptTrial) -> str:
    """What a trial was, its verdict, and why it failed."""
    study, attrs = view.study, trial.attrs
    origin = _ORIGINS.get(trial.origin, f"proposed by the {trial.origin}")
    name = OUTCOMES.get(trial.outcome, (trial.outcome, ""))[0]
    items: list[Words] = [f"verdict: {name}{_verdict(study.unit, trial)}", f"what it was: {origin}"]
    if trial.constraints:
        feasible = "yes" if all(v <= 0 for v in trial.constraints.values()) else "no"
        told = ", ".join(f"{name} {value:+.3g}" for name, value in sorted(trial.constraints.items()))
        items.append(f"feasible: {feasible} (constraints {told}; 0 and below holds)")
    if trial.changed:
        items.append(["differs in: ", Mono(changes(trial.changed))])
    if trial.repeat_of is not None:
        items.append(f"not launched: the same configuration as trial {trial.repeat_of}, told from its record")
    if attrs.get("p99_s") is not None and attrs.get("limit_s"):
        metric = shown(str(attrs.get("metric", "e2e")))
        items.append(f"P99 of {metric}: {latency(attrs['p99_s'])} of {duration(attrs['limit_s'])}")
    for metric in ("ttft", "tpot"):
        if attrs.get(f"{metric}_p99_s") is not None:
            items.append(f"P99 of {shown(metric)}: {latency(attrs[f'{metric}_p99_s'])}")
    if said := attrs.get("predicted"):
        items.append(f"predicted before its launch: {rate(float(said['rps']))} {study.unit}")
    if trial.cause:
        items.append(f"cause: {trial.cause}")
    if attrs.get("mend"):
        items.append(f"to mend it: {attrs['mend']}")
    items.append(f"in kimi-tune's reports: trial {trial.number + 1}")
    if attrs.get("engine_s"):
        items.append(f"engine time: {span(float(attrs['engine_s']))}")
    mark = "; SIMULATED" if study.simulated else ""
    return blocks_markdown([Text(f"Trial {trial.number}: {name}{mark}"), Items(tuple(items))])


def _verdict(unit: str, trial: KeptTrial) -> str:
    if (lost := trial.attrs.get("lost_at_rps")) is not None:
        return f" at {rate(float(lost))} {unit}, the load of the best so far"
    return f" up to {rate(trial.value)} {unit}" if trial.outcome == "ok" and trial.value else ""
