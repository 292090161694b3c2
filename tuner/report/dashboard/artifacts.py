"""A trial's files as the dashboard's artifacts, read where they lie: nothing is copied."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tuner.masking import mask
from tuner.report.content.pictures import trial_curve
from tuner.report.content.view import View
from tuner.report.page.svg import svg_file
from tuner.study.kept import KeptStudy, KeptTrial

_SPACE = uuid.UUID("6f4f0b1e-3f5d-4b7e-9a53-0d5e0a1c7a21")
_LOG_BYTES = 4_000_000
_MIME = {".json": "application/json", ".gz": "application/gzip", ".yaml": "text/plain", ".csv": "text/csv"}


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file that is offered, and how its bytes are read."""

    id: str
    name: str
    mimetype: str
    read: Callable[[], bytes]

    def meta(self) -> dict[str, str | None]:
        """What the dashboard keeps of it."""
        return {"artifact_id": self.id, "filename": self.name, "mimetype": self.mimetype, "encoding": None}


def artifacts_of(study: KeptStudy, trial: KeptTrial) -> Iterator[Artifact]:
    """Server log with its cause first, latency curve, replays, and what was kept of single requests."""
    folder = trial.launch.folder

    def artifact(name: str, mimetype: str, read: Callable[[], bytes]) -> Artifact:
        return Artifact(str(uuid.uuid5(_SPACE, f"{study.name}/{trial.number}/{name}")), name, mimetype, read)

    log = folder / "server.log"
    if log.is_file():
        yield artifact("server-log.txt", "text/plain; charset=utf-8", lambda: _log(log, trial))
    if trial.launch.replays and study.limits:
        yield artifact("latency-curve.svg", "image/svg+xml", lambda: _curve(study, trial))
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name != "server.log":
                kind = _MIME.get(path.suffix, "application/octet-stream")
                yield artifact(path.name, kind, path.read_bytes)


def _log(path: Path, trial: KeptTrial) -> bytes:
    """The log, its cause and mend first; the middle of a long one is left out."""
    head = ""
    if trial.cause:
        head = f"cause: {trial.cause}\n"
        head += f"mend:  {trial.attrs['mend']}\n" if trial.attrs.get("mend") else ""
        head += "\n"
    size = path.stat().st_size
    with path.open("rb") as file:
        text = file.read(_LOG_BYTES // 2 if size > _LOG_BYTES else size)
        if size > _LOG_BYTES:
            file.seek(size - _LOG_BYTES // 2)
            text += b"\n[... left out ...]\n" + file.read()
    return mask(head + text.decode("utf-8", "replace")).encode()


def _curve(study: KeptStudy, trial: KeptTrial) -> bytes:
    return svg_file(trial_curve(View(study), trial)).encode()


class ArtifactFiles:
    """The dashboard's artifact store; read-only."""

    def __init__(self) -> None:
        self.known: dict[str, Artifact] = {}

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The bytes of an artifact.

        Raises:
            ArtifactNotFound: it is not known, or its file has gone.
        """
        from optuna.artifacts.exceptions import ArtifactNotFound

        try:
            return io.BytesIO(self.known[artifact_id].read())
        except (KeyError, OSError) as error:
            raise ArtifactNotFound(artifact_id) from error

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Refused: artifacts are what a study has kept."""
        raise PermissionError(artifact_id)

    def remove(self, artifact_id: str) -> None:
        """Refused."""
        raise PermissionError(artifact_id)
