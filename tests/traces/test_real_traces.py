"""Published traces, where they lie beside the project."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from trace_examples import SHARED

from tuner.traces import (
    NestedLoads,
    Trace,
    cv_of_gaps,
    index_of_dispersion,
    inspect,
    load_trace,
    spread_steps,
    write_trace,
)

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not here")

AZURE = SHARED / "azure2023"
MOONCAKE = SHARED / "mooncake_fast25"


@pytest.fixture(scope="module")
def code() -> Trace:
    return load_trace(AZURE / "AzureLLMInferenceTrace_code.csv")


@pytest.fixture(scope="module")
def conversation() -> Trace:
    return load_trace(MOONCAKE / "conversation_trace.jsonl")


def test_azure_conversation() -> None:
    trace = load_trace(AZURE / "AzureLLMInferenceTrace_conv.csv")
    assert trace.source.format == "azure" and len(trace) == 19_366
    assert trace.rate_rps == pytest.approx(5.53, abs=0.005)
    assert trace.arrival_s[1] == 4.314579
    assert not trace.source.left_out and not trace.source.prefix_reuse


def test_azure_code(code: Trace) -> None:
    assert len(code) == 8_819
    assert code.rate_rps == pytest.approx(2.57, abs=0.005)
    assert cv_of_gaps(code.arrival_s) == pytest.approx(13.2, abs=0.1)
    assert (code.input_tokens[-1], code.output_tokens[-1]) == (549, 173)


@pytest.mark.parametrize("name", ["conv", "code"])
def test_vidurs_copies_are_azures(name: str) -> None:
    azure = load_trace(AZURE / f"AzureLLMInferenceTrace_{name}.csv")
    vidur = load_trace(SHARED / "vidur_splitwise" / f"splitwise_{name}.csv")
    assert vidur.source.format == "vidur"
    assert np.abs(azure.arrival_s - vidur.arrival_s).max() < 1e-6
    assert azure.input_tokens.tolist() == vidur.input_tokens.tolist()
    assert azure.output_tokens.tolist() == vidur.output_tokens.tolist()


def test_mooncake_conversation(conversation: Trace) -> None:
    assert conversation.source.format == "mooncake" and len(conversation) == 12_031
    assert conversation.block_tokens == 512
    assert int((conversation.input_tokens).max()) == 126_195
    assert any("steps of 3 s, 10.2 requests at once" in note for note in conversation.source.notes)
    figures = inspect(conversation)
    assert figures.prefix_reuse == pytest.approx(0.37, abs=0.01)
    assert 5_000 < figures.sessions < 10_000


def test_mooncakes_sessions_grow(conversation: Trace) -> None:
    """The later turns of a session contain a block that an earlier one had, beyond the shared first one."""
    had: dict[int, set[int]] = {}
    for index, session in enumerate(conversation.session.tolist()):
        own = set(conversation.blocks_of(index)[1:].tolist())
        assert session not in had or own & had[session]
        had.setdefault(session, set()).update(own)


def test_mooncakes_steps_can_be_spread(conversation: Trace) -> None:
    even = spread_steps(conversation)
    assert len(np.unique(even.arrival_s)) > 0.99 * len(even)
    assert np.abs(np.sort(even.arrival_s) - conversation.arrival_s).max() <= 3.0
    change = even.source.changes[-1]
    assert change["dispersion_after"]["iod_1s"] < 0.3 * change["dispersion_before"]["iod_1s"]


def test_mooncake_synthetic() -> None:
    trace = load_trace(MOONCAKE / "synthetic_trace.jsonl")
    assert len(trace) == 3_993 and trace.block_tokens == 512


def test_burstgpt() -> None:
    trace = load_trace(SHARED / "burstgpt" / "burstgpt_sample_energy2.csv")
    assert trace.source.format == "burstgpt"
    rows = (SHARED / "burstgpt" / "burstgpt_sample_energy2.csv").read_text().splitlines()[1:]
    failed = sum(row.split(",")[3] == "0" for row in rows)
    assert failed > 0
    assert dict(trace.source.left_out) == {"failed": failed}
    assert len(trace) == len(rows) - failed
    assert any("steps of 1 s" in note for note in trace.source.notes)


def test_ragpulse() -> None:
    trace = load_trace(SHARED / "ragpulse" / "0_trace.jsonl")
    assert trace.source.format == "ragpulse" and len(trace) == 7_106
    assert "order mended: 1 request was earlier than the one before" in trace.source.notes
    assert len(set(trace.session.tolist())) == 3_990


def test_shifted_copies_keep_the_dispersion(code: Trace) -> None:
    """Four shifted copies of Azure's code trace are about as bursty as the trace; four times the same, or
    four times as fast, would be three to four times as bursty.
    """
    loads = NestedLoads(code, requests=4 * len(code))
    copies = loads.at(4 * loads.natural_rps)
    assert index_of_dispersion(code.arrival_s, 60.0) == pytest.approx(161, rel=0.05)
    assert index_of_dispersion(copies.arrival_s, 60.0) == pytest.approx(118, rel=0.35)
    assert index_of_dispersion(copies.arrival_s, 1.0) == pytest.approx(12, rel=0.35)


def test_packed_and_converted(code: Trace, tmp_path: Path) -> None:
    packed = tmp_path / "code"
    packed.write_bytes(gzip.compress((AZURE / "AzureLLMInferenceTrace_code.csv").read_bytes()))
    assert load_trace(packed).digest() == code.digest()
    write_trace(code, tmp_path / "own.jsonl")
    assert load_trace(tmp_path / "own.jsonl").digest() == code.digest()
