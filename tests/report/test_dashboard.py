"""The dashboard's answers: the best feasible trial, constraints, notes, artifacts, plots; read-only."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from made_studies import HOSTILE, make_study

from tuner.cli import run
from tuner.study import StudyPlace

pytest.importorskip("optuna_dashboard")

from tuner.report.dashboard import make_app  # noqa: E402


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the application without a network."""

    def __init__(self, place: StudyPlace) -> None:
        self.app = make_app(place)

    def __call__(
        self, path: str, method: str = "GET", host: str = "127.0.0.1:8080", body: Any = None
    ) -> Answer:
        told: list[Any] = []
        data = json.dumps(body).encode() if body is not None else b""
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "HTTP_HOST": host,
            "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "8080", "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.input": io.BytesIO(data), "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http",
            "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(data)), "HTTP_ACCEPT_ENCODING": "",
        }  # fmt: skip
        parts = self.app(environ, lambda status, headers, exc_info=None: told.append(status))
        return Answer(int(told[0].split()[0]), b"".join(parts))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(make_study(tmp_path_factory.mktemp("studies"), "made"))


def test_the_best_trial_is_the_best_feasible_one_and_constraints_are_told(client: Client) -> None:
    detail = client("/api/studies/1").json
    (best,) = detail["best_trials"]
    values = {t["number"]: t["values"][0] for t in detail["trials"] if max(t["constraints"]) <= 0}
    assert best["number"] == max(values, key=lambda n: values[n])
    assert any(max(t["constraints"]) > 0 for t in detail["trials"])
    assert all(len(t["constraints"]) == 2 for t in detail["trials"])


def test_study_and_trials_have_notes_and_the_study_its_plots(client: Client) -> None:
    detail = client("/api/studies/1").json
    assert "Recommended: 8.10 requests/s" in detail["note"]["body"]
    crashed = next(t for t in detail["trials"] if max(t["constraints"]) > 0)
    assert "cause: no room for the KV cache" in crashed["note"]["body"]
    plots = {plot["id"]: json.loads(plot["graph_object"]) for plot in detail["plotly_graph_objects"]}
    assert set(plots) == {f"kimi-tune-{name}" for name in ("load-e2e", "search", "flags", "predicted")}
    assert plots["kimi-tune-load-e2e"]["layout"]["shapes"][0]["y0"] == 30.0


def test_the_log_begins_with_its_cause(client: Client) -> None:
    crashed = next(t for t in client("/api/studies/1").json["trials"] if max(t["constraints"]) > 0)
    artifact = next(a for a in crashed["artifacts"] if a["filename"] == "server-log.txt")
    log = client(f"/artifacts/1/{crashed['trial_id']}/{artifact['artifact_id']}").body.decode()
    assert log.startswith("cause: no room for the KV cache")
    assert "mend:  lower max-model-len" in log and "ERROR no room" in log
    served = client("/api/studies/1").json["trials"][0]
    curve = next(a for a in served["artifacts"] if a["filename"] == "latency-curve.svg")
    assert client(f"/artifacts/1/1/{curve['artifact_id']}").body.startswith(b"<svg xmlns=")


def test_nothing_can_be_changed_but_notes_and_foreign_names_are_refused(client: Client) -> None:
    assert client("/api/studies/1", "DELETE", body={}).status == 403
    assert client("/api/studies/1/rename", "POST", body={"study_name": "other"}).status == 403
    assert client("/api/trials/1/user-attrs", "POST", body={"user_attrs": {"a": 1}}).status == 403
    assert client("/api/studies/1", host="evil.example").status == 403
    assert client("/api/studies/1", host="localhost:8080").status == 200


def test_a_users_note_stays(tmp_path: Path) -> None:
    place = make_study(tmp_path, "noted", kinds="ok")
    asked = Client(place)
    for path in ("/api/studies/1/note", "/api/studies/1/2/note"):
        assert asked(path, "PUT", body={"body": "mine", "version": 2}).status == 204
    detail = Client(place)("/api/studies/1").json
    assert detail["note"]["body"] == "mine" and detail["trials"][1]["note"]["body"] == "mine"


def test_where_nothing_is_feasible_no_trial_is_best(tmp_path: Path) -> None:
    detail = Client(make_study(tmp_path, "none", kinds="ccr", finish="none"))("/api/studies/1").json
    assert detail["best_trials"] == [] and len(detail["trials"]) == 3


def test_an_unfinished_study_with_hostile_texts_is_shown(tmp_path: Path) -> None:
    place = make_study(tmp_path, "odd", kinds="okcri", finish=None, hostile=HOSTILE)
    detail = Client(place)("/api/studies/1").json
    assert "Not finished" in detail["note"]["body"]
    assert all("\\<script" in t["note"]["body"] for t in detail["trials"] if "cause" in t["note"]["body"])


def test_without_it_one_line_says_how_to_install_it(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tuner.report.dashboard.available", lambda: False)
    assert run(["dashboard"]) == 5
    assert "pip install 'kimi-tune[dashboard]'" in capsys.readouterr().err
