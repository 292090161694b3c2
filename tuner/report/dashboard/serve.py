"""The dashboard as a local web server: one study, read-only but for notes."""

from __future__ import annotations

import importlib.util
import json
import re
import socketserver
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tuner.errors import BadRequest, EngineUnavailable
from tuner.study.kept import RUNNING, load_study, read_study
from tuner.study.storage import StudyPlace

INSTALL = "pip install 'kimi-tune[dashboard]'"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_DETAIL = re.compile(r"/api/studies/\d+")
_NOTE = re.compile(r"/api/studies/\d+(?:/\d+)?/note")
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def available() -> bool:
    """Whether optuna-dashboard is installed."""
    return importlib.util.find_spec("optuna_dashboard") is not None


def make_app(place: StudyPlace, host: str = "127.0.0.1") -> App:
    """The dashboard of a study as a WSGI application; its note and plots are saved in it on the way.

    Raises:
        BadRequest: the study is not there.
    """
    from optuna_dashboard import wsgi

    from tuner.report.dashboard.artifacts import ArtifactFiles
    from tuner.report.dashboard.storage import DashboardStorage, save

    if place.storage is not None and place.storage.startswith("grpc:"):
        raise BadRequest(f"--storage {place.storage}: a proxy", "name the database that is behind it")
    if read_study(place).state != RUNNING:
        save(place)
    files = ArtifactFiles()
    inner = wsgi(DashboardStorage(place, files), artifact_store=files)
    return _Guard(inner, local=host in LOOPBACK)


class _Guard:
    """In front of the dashboard: refuses what would change a study, and names no best trial where none is
    feasible.

    Where it listens to this machine only, requests by another host's name are refused: a web page could
    otherwise reach it through a name of its own that resolves to 127.0.0.1.
    """

    def __init__(self, inner: App, *, local: bool) -> None:
        self._inner, self._local = inner, local

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "").rstrip("/")
        host = re.sub(r":\d+$", "", environ.get("HTTP_HOST", "")).strip("[]")
        if self._local and host not in LOOPBACK:
            return _refuse(start, "403 Forbidden", f"{host}: only 127.0.0.1 and localhost are answered")
        if method not in ("GET", "HEAD") and not (method == "PUT" and _NOTE.fullmatch(path)):
            return _refuse(start, "403 Forbidden", "a study is only shown here: see kimi-tune studies")
        if method == "GET" and _DETAIL.fullmatch(path):
            return self._detail(environ, start)
        return self._inner(environ, start)

    def _detail(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        told: list[Any] = []

        def keep(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            told[:] = [status, headers]

        body = b"".join(self._inner(environ, keep))
        status, headers = told
        if status.startswith("200"):
            detail = json.loads(body)
            detail["best_trials"] = [t for t in detail["best_trials"] if _feasible(t)]
            body = json.dumps(detail).encode()
            headers = [(k, v) for k, v in headers if k.lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start(status, headers)
        return [body]


def _feasible(trial: dict[str, Any]) -> bool:
    return all(value <= 0 for value in trial["constraints"])


def _refuse(start: Callable[..., Any], status: str, reason: str) -> Iterable[bytes]:
    body = json.dumps({"reason": reason}).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the user."""


def serve(
    place: StudyPlace, host: str, port: int, listening: Callable[[str], None], *, verbose: bool = False
) -> None:
    """Serve until interrupted; `listening` is told the address.

    Raises:
        EngineUnavailable: the port is taken.
    """
    app = make_app(place, host)
    try:
        server = make_server(host, port, app, _Server, WSGIRequestHandler if verbose else _Quiet)
    except OSError as error:
        raise EngineUnavailable(f"port {port}: {error.strerror}", "name another with --port") from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        number = load_study(place)._study_id
        listening(f"http://{shown}:{server.server_port}/dashboard/studies/{number}")
        server.serve_forever()
