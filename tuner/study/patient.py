"""A storage that waits: a database that restarts, or a connection that is cut, costs time and no trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tuner.errors import EngineUnavailable
from tuner.masking import mask
from tuner.study.storage_faults import AGAIN, storage_fault

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, TrialState

PATIENCE_S = 300.0
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_HOPELESS = (
    "disk is full",
    "disk i/o error",
    "readonly database",
    "unable to open database",
    "no such table",
    "is not a database",
)
"""What waiting does not mend."""

T = TypeVar("T")


def is_away(error: BaseException) -> bool:
    """Whether an error says that the storage cannot be reached now, rather than that a request was wrong."""
    import optuna
    from sqlalchemy import exc

    cause: BaseException | None = error
    if isinstance(error, optuna.exceptions.StorageInternalError):
        cause = error.__cause__
    if type(error).__module__.split(".")[0] == "grpc":
        return True
    if isinstance(cause, exc.PendingRollbackError):
        return True  # a connection was cut within a transaction, and Optuna asked once more in the same one
    if not isinstance(cause, exc.OperationalError | exc.InterfaceError | exc.InternalError):
        return isinstance(cause, exc.DBAPIError) and bool(cause.connection_invalidated)
    return not any(word in str(cause).lower() for word in _HOPELESS)


def reason_of(error: BaseException) -> str:
    """The first line of what the database itself said."""
    cause = error.__cause__ or error
    text = str(getattr(cause, "orig", None) or cause).strip()
    return mask(text.splitlines()[0] if text else type(cause).__name__)


def wait_for(call: Callable[[], T], say: Callable[[str], None], patience_s: float = PATIENCE_S) -> T:
    """Call again while the storage is away.

    Raises:
        EngineUnavailable: it stays away, or waiting would not help.
    """
    import optuna
    from sqlalchemy import exc

    started, tries, said = time.monotonic(), 0, False
    while True:
        try:
            done = call()
        except Exception as error:
            away = is_away(error)
            if not away and not isinstance(error, optuna.exceptions.StorageInternalError | exc.DBAPIError):
                raise
            if not away or time.monotonic() - started > patience_s:
                raise storage_fault(error) or EngineUnavailable(
                    f"the study's storage does not answer: {reason_of(error)}", f"bring it back, {AGAIN}"
                ) from error
            if tries >= 3 and not said:
                said = True
                say(f"the study's storage is away ({reason_of(error)}), waiting for it")
            time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            tries += 1
        else:
            if said:
                say("the study's storage is back")
            return done


def patient(inner: BaseStorage, say: Callable[[str], None] | None = None) -> BaseStorage:
    """`inner`, whose every call waits while the database is away.

    A call whose answer was lost may have been carried out: attributes are set again to the same, a trial that
    has come into being is taken instead of made twice, one that has the state asked for is left. That needs
    one process to be the only one that makes and ends trials, which the study's owner is.
    """
    import optuna

    class Patient(optuna.storages.BaseStorage):
        def __init__(self) -> None:
            self.inner = inner
            self.say: Callable[[str], None] = say or (lambda text: None)

        def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
            before = self._wait("get_n_trials", study_id)
            tries = 0

            def create() -> int:
                nonlocal tries
                tries += 1
                if tries > 1:
                    trials = inner.get_all_trials(study_id, deepcopy=False)
                    if len(trials) > before:
                        return trials[-1]._trial_id
                return inner.create_new_trial(study_id, template_trial)

            return wait_for(create, self.say)

        def set_trial_state_values(
            self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
        ) -> bool:
            tries = 0

            def change() -> bool:
                nonlocal tries
                tries += 1
                if tries > 1 and inner.get_trial(trial_id).state is state:
                    return True
                return inner.set_trial_state_values(trial_id, state, values)

            return wait_for(change, self.say)

        def set_trial_param(
            self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
        ) -> None:
            self._wait("set_trial_param", trial_id, param_name, param_value_internal, distribution)

        def create_new_study(
            self, directions: Sequence[StudyDirection], study_name: str | None = None
        ) -> int:
            return int(self._wait("create_new_study", directions, study_name))

        def delete_study(self, study_id: int) -> None:
            self._wait("delete_study", study_id)

        def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
            self._wait("set_study_user_attr", study_id, key, value)

        def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
            self._wait("set_study_system_attr", study_id, key, value)

        def get_study_id_from_name(self, study_name: str) -> int:
            return int(self._wait("get_study_id_from_name", study_name))

        def get_study_name_from_id(self, study_id: int) -> str:
            return str(self._wait("get_study_name_from_id", study_id))

        def get_study_directions(self, study_id: int) -> Any:
            return self._wait("get_study_directions", study_id)

        def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
            return dict(self._wait("get_study_user_attrs", study_id))

        def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
            return dict(self._wait("get_study_system_attrs", study_id))

        def get_all_studies(self) -> Any:
            return self._wait("get_all_studies")

        def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
            return int(self._wait("get_trial_id_from_study_id_trial_number", study_id, trial_number))

        def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
            self._wait("set_trial_intermediate_value", trial_id, step, intermediate_value)

        def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
            self._wait("set_trial_user_attr", trial_id, key, value)

        def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
            self._wait("set_trial_system_attr", trial_id, key, value)

        def get_trial(self, trial_id: int) -> FrozenTrial:
            trial: FrozenTrial = self._wait("get_trial", trial_id)
            return trial

        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
        ) -> list[FrozenTrial]:
            return list(self._wait("get_all_trials", study_id, deepcopy, states))

        def get_n_trials(self, study_id: int, state: Any = None) -> int:
            return int(self._wait("get_n_trials", study_id, state))

        def get_best_trial(self, study_id: int) -> FrozenTrial:
            trial: FrozenTrial = self._wait("get_best_trial", study_id)
            return trial

        def remove_session(self) -> None:
            inner.remove_session()

        def _wait(self, name: str, *args: Any) -> Any:
            return wait_for(lambda: getattr(inner, name)(*args), self.say)

    return Patient()
