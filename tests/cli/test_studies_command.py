"""Studies listed, shown, deleted and renamed."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from made_studies import make_study

from tuner.profiles import load_profile, save_profile
from tuner.study import read_study
from tuner.study.kept import load_study
from tuner.study.owner import this_owner

ROOT = Path("studies")


@pytest.fixture
def studies(kimi_tune, tmp_path: Path):
    """The command in a folder with two studies."""
    make_study(tmp_path / "studies", "done", kinds="okc")
    make_study(tmp_path / "studies", "cut", kinds="oki", finish=None)
    return kimi_tune


def test_the_list_says_model_gpu_slo_best_and_state(studies) -> None:
    ran = studies("studies")
    assert ran.code == 0
    for words in ("kimi-k2.6-awq, A100-80G, E2E 30 s (simulated)", "7.35 requests/s", "unfinished, 2 trials"):
        assert words in " ".join(ran.out.split()), words
    states = {entry["name"]: entry["state"] for entry in studies("studies", "--json").json}
    assert states == {"done": "finished", "cut": "unfinished"}


def test_one_is_shown(studies) -> None:
    assert "Recommended: 7.35 requests/s" in studies("studies", "show", "done").out
    assert "Not finished: the best so far carries 7.35 requests/s" in studies("studies", "show", "cut").out
    assert "## Reproduce" in studies("studies", "show", "done", "--verbose").out
    assert studies("studies", "show", "none").code == 2


def test_deleting_asks_and_refuses_a_running_study(studies) -> None:
    assert studies("studies", "delete", "cut").code == 2, "nobody is there to say yes"
    study = load_study(read_study_place("cut"))
    study.set_user_attr("owner", this_owner())
    refused = studies("studies", "delete", "cut", "--yes")
    assert refused.code == 2 and "is running it" in refused.err and (ROOT / "cut").exists()
    study.set_user_attr("owner", None)
    assert studies("studies", "delete", "cut", "--yes").code == 0
    assert not (ROOT / "cut").exists() and (ROOT / "done").exists()


def test_a_renamed_study_is_the_same_study(studies) -> None:
    place = read_study_place("done")
    kept = read_study(place)
    assert kept.result is not None and kept.result.profile is not None
    save_profile(kept.result.profile, place.folder / "profile.yaml")
    assert studies("studies", "rename", "done", "cut").code == 2
    assert studies("studies", "rename", "done", "../out").code == 2
    assert studies("studies", "rename", "done", "chat").code == 0
    url = f"sqlite:///{Path('studies/chat/study.db').absolute()}"
    assert len(optuna.load_study(study_name="chat", storage=url).trials) == 3
    assert load_profile(ROOT / "chat" / "profile.yaml").study == "chat"
    assert (
        studies("export", "chat").code == 0
        and "chat" in studies("studies", "show", "chat", "--json").json["study"]
    )


def read_study_place(name: str):
    from tuner.study import find_study

    return find_study(name, ROOT)
