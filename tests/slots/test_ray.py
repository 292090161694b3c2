"""Trials on a Ray cluster of two nodes on one machine, one of which is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="pip install 'kimi-tune[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402
from side_by_side import slow  # noqa: E402
from toy import Watcher, make_job  # noqa: E402

from tuner.slots.rays import ray_pool  # noqa: E402
from tuner.study import StudyPlace, tune  # noqa: E402


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_study_survives_the_loss_of_a_node(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    job = make_job(trials=8)
    job = replace(job, slots=ray_pool(cluster.address, slow, job.engine, None, 3), parallel=3)

    class Loser(Watcher):
        def trial_finished(self, record: object, best: object) -> None:
            super().trial_finished(record, best)
            if len(self.of("trial_finished")) == 3:
                threading.Thread(target=lambda: cluster.remove_node(node, allow_graceful=False)).start()

    watcher = Loser()
    begun = time.monotonic()
    result = tune(job, StudyPlace("ray", tmp_path), watcher)
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 8
    assert result.recommendation == "tuned"
    print(f"{result.trials} in {time.monotonic() - begun:.0f} s", watcher.of("note"))
