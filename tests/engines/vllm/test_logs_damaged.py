"""Damaged logs are read without an exception. KIMI_TUNE_MUTATIONS sets how many are tried."""

from __future__ import annotations

import os
import random
from pathlib import Path

from damage import mutated
from log_texts import TEXTS

from tuner.engines.vllm.logs import read_log
from tuner.masking import mask

MUTATIONS = int(os.environ.get("KIMI_TUNE_MUTATIONS", "300"))


def test_random_damage(tmp_path: Path) -> None:
    rng = random.Random(5)
    logs = [text.log.encode() for text in TEXTS if text.log]
    for _ in range(MUTATIONS):
        log = mutated(rng, b"\n".join(rng.sample(logs, 2)))
        report = read_log(log.decode("utf-8", "replace"))
        assert report.kind is None or report.cause
        assert mask(report.cause or "") == (report.cause or "")
