"""Where a study lives: its folder, its database, and the one process that runs it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tuner.errors import BadRequest
from tuner.spec import LoadMode
from tuner.study.job import Job
from tuner.study.owning import owning
from tuner.study.patient import patient
from tuner.study.storage_faults import storage_fault

if TYPE_CHECKING:
    from optuna.study import Study

SQLITE_TIMEOUT_S = 60
_TABLE_TRIES, _TABLE_WAIT_S = 5, 0.5
_PRIVATE = 0o700
GRPC = "grpc://"
"""How the address of Optuna's gRPC proxy begins."""
GRPC_PORT = 13000
DRIVERS = {"postgresql://": "postgresql+psycopg://", "mysql://": "mysql+pymysql://"}
"""Addresses that name no driver get the one of this project's extras."""
UNITS = {LoadMode.RATE: "requests/s", LoadMode.USERS: "users"}
"""What a trial's value counts, by how load is offered."""


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """A study's name, the folder that holds studies, a storage URL (None: SQLite in the study's folder)."""

    name: str
    root: Path = Path("studies")
    storage: str | None = None

    @property
    def folder(self) -> Path:
        """`ROOT/NAME`."""
        return self.root / self.name

    @property
    def shared(self) -> bool:
        """Whether processes on other hosts may use the same storage."""
        return self.storage is not None and not self.storage.startswith("sqlite")

    def trial_folder(self, number: int) -> Path:
        """`ROOT/NAME/trials/N`."""
        return self.folder / "trials" / str(number)

    def finals_folder(self, index: int) -> Path:
        """`ROOT/NAME/finals/N`, N from 1."""
        return self.folder / "finals" / str(index)

    def url(self) -> str:
        """The storage's SQLAlchemy URL."""
        if self.storage is not None:
            return self.storage
        from sqlalchemy import URL

        path = (self.folder / "study.db").absolute()
        return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def exists(place: StudyPlace) -> bool:
    """Whether the study's own database is there (a storage URL is not asked)."""
    return place.storage is None and (place.folder / "study.db").exists()


def make_folder(job: Job, place: StudyPlace) -> None:
    """Make the study's folder, for its owner alone where the trace carries text.

    Servers are sent that text and may quote it in the logs that are kept here; figures, lengths and salted
    block ids are all that the study itself writes.

    Raises:
        BadRequest: it cannot be made.
    """
    private = job.trace.bodies is not None
    try:
        place.folder.mkdir(mode=_PRIVATE if private else 0o777, parents=True, exist_ok=True)
        if private:  # one that was there before
            place.folder.chmod(_PRIVATE)
    except OSError as error:
        raise _cannot_be_written(place, error) from error


def _cannot_be_written(place: StudyPlace, error: OSError) -> BadRequest:
    return BadRequest(f"{place.folder}: cannot be written ({error.strerror})", "name another folder")


def open_storage(place: StudyPlace, *, quick: bool = False) -> Any:
    """The Optuna storage of a place, its folder made.

    `quick` does not wait for the disk: a process that is killed loses nothing by it, a machine that loses its
    power may. It is for studies whose trials cost seconds.

    Raises:
        BadRequest: the folder or the storage cannot be used.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        url = place.url()
        storage = _connect(url)
    except OSError as error:
        raise _cannot_be_written(place, error) from error
    except Exception as error:
        if (fault := storage_fault(error)) is not None and place.storage is None:
            raise fault from error
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadRequest(
            f"storage {place.storage or place.folder}: {first}", "check the storage's address"
        ) from error
    if quick and url.startswith("sqlite"):
        _do_not_wait(storage.engine)
    return storage


def _connect(url: str) -> Any:
    import optuna

    if url.startswith(GRPC):
        host, _, port = url.removeprefix(GRPC).partition(":")
        return optuna.storages.GrpcStorageProxy(host=host or "localhost", port=int(port or GRPC_PORT))
    for scheme, driver in DRIVERS.items():
        url = driver + url.removeprefix(scheme) if url.startswith(scheme) else url
    # a connection that a restarted database has cut is found out before it is used
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": SQLITE_TIMEOUT_S}}
    for left in range(_TABLE_TRIES - 1, -1, -1):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        except Exception as error:
            if not left or not _made_by_another(error):
                raise
            time.sleep(_TABLE_WAIT_S)
    raise AssertionError("unreachable")


def _made_by_another(error: Exception) -> bool:
    """Whether a process on another host made the empty database's tables at the same moment."""
    from sqlalchemy import exc

    said = str(error).lower()
    return isinstance(error, exc.DBAPIError) and ("already exists" in said or "duplicate" in said)


def join_study(place: StudyPlace, say: Callable[[str], None] | None = None) -> Study:
    """A study that is there.

    Raises:
        BadRequest: it is not, or the storage cannot be used.
    """
    import optuna

    storage = open_storage(place)
    try:
        return optuna.load_study(study_name=place.name, storage=patient(_cached(storage), say))
    except KeyError as error:
        raise BadRequest(
            f"study {place.name}: not in that storage", "start it with kimi-tune --study and --storage"
        ) from error


def _cached(storage: Any) -> Any:
    """Finished trials read once; a proxy does that itself."""
    import optuna

    return optuna.storages.get_storage(storage)


def _do_not_wait(engine: Any) -> None:
    from sqlalchemy import event

    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    engine.dispose()


@contextmanager
def open_study(job: Job, place: StudyPlace, say: Callable[[str], None] | None = None) -> Iterator[Study]:
    """The study of a job, made or found, owned by this process while the context lasts.

    `say` is told when the storage is away and when it is back.

    Raises:
        BadRequest: the study was made for another job, another process runs it, or it cannot be stored.
    """
    import optuna

    make_folder(job, place)
    study = optuna.create_study(
        study_name=place.name,
        storage=patient(_cached(open_storage(place, quick=job.engine.deterministic)), say),
        direction="maximize",
        load_if_exists=True,
    )
    attrs = study.user_attrs
    _check_identity(attrs.get("job"), job.identity(), place.name)
    with owning(study, place.folder, shared=place.shared):
        if "job" not in attrs:
            study.set_user_attr("job", job.identity())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                study.set_metric_names([UNITS[job.spec.load]])
        write_spec(job, place)
        yield study


def write_spec(job: Job, place: StudyPlace) -> None:
    """Write `spec.yaml`: what was asked, and the budget."""
    budget = {"trials": job.spec.budget.trials, "engine_s": job.spec.budget.engine_s}
    text = yaml.safe_dump(plain({**job.identity(), "budget": budget}), sort_keys=False, allow_unicode=True)
    (place.folder / "spec.yaml").write_text(text, encoding="utf-8")


def plain(value: Any) -> Any:
    """A value as JSON holds it: tuples become lists, mappings dicts."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def _check_identity(before: dict[str, Any] | None, now: dict[str, Any], name: str) -> None:
    now = plain(now)
    if before is None or before == now:
        return
    # what a study of an earlier version did not note is not compared
    differs = ", ".join(sorted(key for key in before.keys() & now.keys() if before[key] != now[key]))
    if not differs:
        return
    raise BadRequest(
        f"study {name}: it was made for another job ({differs} differs)",
        "name another with --study, or start afresh with --new",
    )
