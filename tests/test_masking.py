"""Secrets are masked wherever they may turn up, and nothing else is touched."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli.output import print_error
from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm.logs import read_log
from tuner.errors import BadRequest
from tuner.masking import MASK, mask, mask_file, secret_values

TOKEN = "hf_" + "a1B2" * 8
KEY = "sk-proj-" + "x9" * 12


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"401 for https://huggingface.co with token {TOKEN}.", TOKEN),
        (f"Authorization: Bearer {KEY}", KEY),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("cannot reach postgresql://tuner:s3cret!pw@db.example:5432/studies", "s3cret!pw"),
        ("cannot reach mysql://tuner:s3c/ret:pw@db.example/studies", "s3c/ret:pw"),
        ("postgresql://db.example/studies?user=tuner&password=s3cretpw&sslmode=require", "s3cretpw"),
        ("vllm serve m --api-key abcdefgh12 --port 8000", "abcdefgh12"),
        ("vllm serve m --api-key=abcdefgh12", "abcdefgh12"),
        ("non-default args: {'api_key': 'abcdefgh12', 'port': 8000}", "abcdefgh12"),
        ('{"password": "hunter2hunter2"}', "hunter2hunter2"),
    ],
)
def test_secrets_by_their_looks(text: str, secret: str) -> None:
    masked = mask(text, {})
    assert secret not in masked and MASK in masked
    assert mask(masked, {}) == masked


def test_secrets_of_the_environment() -> None:
    environment = {"HF_TOKEN": "plain-looking-1", "MY_SECRET": "another thing", "PATH": "/usr/bin:/bin"}
    assert secret_values(environment) == ["plain-looking-1", "another thing"]
    assert mask("a plain-looking-1 b another thing in /usr/bin:/bin", environment) == (
        f"a {MASK} b {MASK} in /usr/bin:/bin"
    )


@pytest.mark.parametrize(
    "text",
    [
        "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed",
        "max-num-batched-tokens=8192 tokenizer=auto kv-cache-dtype fp8",
        "http://127.0.0.1:8000/v1/models",
        "trial 3: P99 22.4 s of 30 s at 7.87 requests/s",
        "sqlite:////var/lib/studies/a/study.db",
        "user@example.org wrote 12:30 http://host:80/a@b",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text, {"MAX_TOKENS": "8192", "TOKENIZERS_PARALLELISM": "false"}) == text


@given(st.text())
def test_any_text_and_twice_is_once(text: str) -> None:
    once = mask(text, {})
    assert mask(once, {}) == once


def test_a_long_hostile_text_takes_no_longer_than_its_length() -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        mask(text, {})
        return time.process_time() - began

    for piece in ("a", "a:", "://", "--api-key ", "Bearer ", "password='", "hf_", "x://u:"):
        short, long = piece * 4_000, piece * 32_000
        seconds(short)
        assert min(seconds(long) for _ in range(3)) < 40 * max(min(seconds(short) for _ in range(3)), 1e-3)


def test_a_file_is_masked_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    log = tmp_path / "server.log"
    text = f"INFO token={TOKEN} and again {TOKEN}\nINFO ready\n"
    log.write_text(text)
    assert mask_file(log)
    assert TOKEN not in log.read_text() and log.read_text().endswith("INFO ready\n")
    assert log.stat().st_size == len(text)
    assert not mask_file(log)
    log.write_text("")
    assert not mask_file(log)


def test_a_failure_and_a_log_report_hold_no_secret() -> None:
    failure = LaunchFailure(FailureKind.UNKNOWN, f"401 with {TOKEN}", mend=f"not {TOKEN}")
    assert TOKEN not in f"{failure} {failure.cause} {failure.mend}"
    report = read_log(
        f"INFO non-default args: {{'api_key': ['{KEY}'], 'hf_token': '{TOKEN}', 'max_num_seqs': 8}}\n"
        f"OSError: You are trying to access a gated repo with token {TOKEN}\n"
    )
    said = f"{report.cause} {report.lines(verbose=True)} {report.to_json()} {report.args}"
    assert TOKEN not in said and KEY not in said


def test_an_error_line_holds_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(BadRequest("storage postgresql://tuner:s3cret!pw@db/x: no answer"), wants_json=True)
    out, err = capsys.readouterr()
    assert "s3cret" not in out + err and f"tuner:{MASK}@db" in out and f"tuner:{MASK}@db" in err
