"""What cannot be done is refused in one clear line, with the exit code of the design."""

from __future__ import annotations

from pathlib import Path

import pytest

MAIN = ("--gpu", "A100-80G", "--slo-p99", "30s")


def one_line(text: str) -> str:
    """The only line of stderr."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_a_model_larger_than_the_gpu_is_refused_with_the_sum_and_the_count(kimi_tune) -> None:
    ran = kimi_tune("--gpu", "A100-80G", "--slo-p99", "30s", "--model", "moonshotai/Kimi-K2.6")
    assert ran.code == 4
    line = one_line(ran.err)
    assert "594" in line and "80" in line
    assert "16" in line, "the GPU count that would do"
    assert not Path("studies").exists()


def test_a_real_engine_on_a_gpu_that_is_not_here_is_refused(kimi_tune, monkeypatch) -> None:
    monkeypatch.setattr("tuner.cli.setup.detect", lambda: [])
    ran = kimi_tune(*MAIN, "--engine", "vllm")
    assert ran.code == 2
    assert "A100-80G" in one_line(ran.err)


def test_no_gpu_to_detect_is_refused(kimi_tune, monkeypatch) -> None:
    monkeypatch.setattr("tuner.cli.setup.detect", lambda: [])
    ran = kimi_tune("--slo-p99", "30s")
    assert ran.code == 2
    assert "--gpu A100-80G" in one_line(ran.err)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ('{"timestamp": 10, "output_length": 5, "hash_ids": [1]}', "input_length"),
        ('{"timestamp": 10, "input_length": 600, ', ""),
    ],
)
def test_a_broken_line_of_a_trace_names_file_and_line(
    kimi_tune, tmp_path: Path, row: str, field: str
) -> None:
    trace = tmp_path / "broken.jsonl"
    good = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    trace.write_text(good * 2 + row + "\n" + good)
    ran = kimi_tune(*MAIN, "--trace", trace)
    assert ran.code == 2
    line = one_line(ran.err)
    assert "broken.jsonl" in line and "line 3" in line and field in line


def test_a_trace_that_is_not_there_names_it(kimi_tune) -> None:
    ran = kimi_tune(*MAIN, "--trace", "nowhere.jsonl")
    assert ran.code == 2
    assert "nowhere.jsonl" in one_line(ran.err)


def test_an_unknown_flag_in_a_space_names_the_nearest(kimi_tune, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("parameters:\n  max-num-seq: {choices: [64, 128]}\n")
    ran = kimi_tune(*MAIN, "--space", space)
    assert ran.code == 2
    line = one_line(ran.err)
    assert "space.yaml" in line and "max-num-seqs" in line


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("--gpu", "A100-80G"), "SLO"),
        (("--gpu", "A100-80G", "--slo-p99", "fast"), "fast"),
        (("--gpu", "A100-80G", "--slo-p99", "0s"), "0s"),
        (("--gpu", "A101-80G", "--slo-p99", "30s"), "A100-80G"),
        ((*MAIN, "--model", "kimi-k9"), "kimi"),
        ((*MAIN, "--set", "max-num-seqs"), "FLAG=VALUE"),
        ((*MAIN, "--set", "max-num-seq=4"), "max-num-seqs"),
        ((*MAIN, "--trials", "none"), "--trials"),
        ((*MAIN, "--engine", "tgi"), "--engine"),
        ((*MAIN, "--nonsense"), "--nonsense"),
        (("nonsense",), "nonsense"),
        ((*MAIN, "studies"), "studies"),
        (("export", "no-such-study"), "no-such-study"),
        (("simulate", "--gpu", "A100-80G", "--find-max"), "SLO"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(kimi_tune, argv: tuple[str, ...], word: str) -> None:
    ran = kimi_tune(*argv)
    assert ran.code == 2
    assert word in one_line(ran.err)
    assert ran.out == ""


def test_a_server_that_is_not_there_is_exit_5(kimi_tune) -> None:
    ran = kimi_tune("replay", "--url", "http://127.0.0.1:9")
    assert ran.code == 5
    assert "127.0.0.1:9" in one_line(ran.err)


def test_with_json_an_error_is_an_object_too(kimi_tune) -> None:
    ran = kimi_tune("--gpu", "A100-80G", "--json")
    assert ran.code == 2
    assert ran.json["error"]["exit"] == 2
    assert ran.json["error"]["what"] and ran.json["error"]["mend"]


def test_no_arguments_print_the_help(kimi_tune) -> None:
    ran = kimi_tune()
    assert ran.code == 0
    assert "--slo-p99" in ran.out and "simulate" in ran.out
