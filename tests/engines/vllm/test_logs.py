"""What the log reader makes of logs: those of real servers, and texts after public reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from log_texts import TEXTS, Text

from tuner.engines.vllm.logs import LogReport, read_log, read_log_file
from tuner.errors import BadRequest

REAL = Path(__file__).parents[3].parent / "shared" / "vllm_logs"


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
def test_texts_after_public_reports(text: Text) -> None:
    report = read_log(text.log)
    said = report.to_json()
    assert (said["kind"], said["ready"]) == (text.kind, text.kind is None), said["cause"]
    assert said["bound"] == pytest.approx(text.bound) if not text.bound else True
    assert {flag: pytest.approx(limits) for flag, limits in text.bound.items()} == said["bound"]
    for word in text.words:
        assert word in report.cause
    for name, value in text.figures.items():
        assert said[name] == value
    if text.kind is not None:
        assert report.cause and report.mend
        assert "See root cause above" not in report.cause
    json.dumps(said)


def test_every_kind_has_a_text() -> None:
    kinds = {text.kind for text in TEXTS}
    from tuner.engines.base import FailureKind

    # a slot is a process of ours: no log of vLLM tells of its loss
    assert kinds == {None, *(kind.value for kind in FailureKind if kind is not FailureKind.SLOT_LOST)}


def _real(name: str) -> LogReport:
    path = REAL / name
    if not path.exists():
        pytest.skip("no real logs here")
    return read_log_file(path)


@pytest.mark.parametrize(
    ("name", "kv_tokens", "weights_gib", "startup_s"),
    [
        ("h200_0.21.0_ready.log", 893_904, 15.0, 68.0),
        ("h200_0.21.0_ready_warm_cache.log", 895_776, 15.0, 48.0),
        ("h200_0.21.0_ready_num_seqs_64.log", 895_680, 15.0, 60.0),
        ("h200_0.21.0_moonlight_ready.log", 3_240_768, 29.88, 51.0),
        ("cpu_0.32.0_ready.log", 524_288, None, 96.0),
        ("cpu_0.32.0_ready_eager.log", 524_288, None, 52.0),
    ],
)
def test_real_healthy_logs(name: str, kv_tokens: int, weights_gib: float | None, startup_s: float) -> None:
    report = _real(name)
    assert report.ready and report.kind is None
    assert (report.kv_tokens, report.weights_gib, report.startup_s) == (kv_tokens, weights_gib, startup_s)
    assert report.version == name.split("_")[1]
    assert report.phases["init engine"] > 1


def test_flags_of_a_real_log() -> None:
    report = _real("h200_0.21.0_ready.log")
    assert report.args["max-num-seqs"] == 256
    assert report.effective["max-num-batched-tokens"] == 8192
    assert report.effective["enable-prefix-caching"] is True
    assert report.effective["async-scheduling"] is True
    sizes = report.effective["cudagraph-capture-sizes"]
    assert isinstance(sizes, tuple) and len(sizes) == 51 and sizes[-1] == 512


@pytest.mark.parametrize(
    ("name", "kind", "bound"),
    [
        ("h200_0.21.0_block_size_8.log", "attention_backend", {"block-size": {"min": 16}}),
        ("h200_0.21.0_model_len_over_kv.log", "model_len", {"max-model-len": {"max": 84704}}),
        ("h200_0.21.0_swap_space_unrecognized.log", "bad_flag", {}),
        ("h200_0.21.0_moonlight_silent_jit.log", "startup_timeout", {}),
    ],
)
def test_real_failed_logs(name: str, kind: str, bound: dict[str, object]) -> None:
    said = _real(name).to_json()
    assert (said["ready"], said["kind"], said["bound"]) == (False, kind, bound)


def test_real_log_without_kv_memory_bounds_the_utilization_from_below() -> None:
    """An H200 holds 139.8 GiB: 3.64 GiB more need a share of at least 0.1 + 0.026."""
    report = _real("h200_0.21.0_no_kv_memory.log")
    assert report.kind == "kv_memory"
    (bound,) = report.bounds
    assert bound.min is not None and 0.12 < bound.min <= 0.1 + 3.64 / 139.8


def test_silent_compilation_is_no_hang() -> None:
    report = _real("h200_0.21.0_moonlight_silent_jit.log")
    assert "FlashInfer CUTLASS" in report.cause and "no hang" in report.cause
    assert "moe-backend" in report.mend and "triton" in report.mend


def test_a_log_without_its_beginning_tells_no_startup_time() -> None:
    whole = next(text.log for text in TEXTS if text.name == "ready")
    assert read_log(whole).startup_s == 54.0
    cut = read_log(whole.split("\n", 1)[1])
    assert (cut.ready, cut.startup_s, cut.kv_tokens) == (True, None, 149264)


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="nothing.log"):
        read_log_file(tmp_path / "nothing.log")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.log"
    path.write_text("größe\nvllm: error: unrecognized arguments: --x\n", encoding=encoding)
    assert read_log_file(path).kind == "bad_flag"
