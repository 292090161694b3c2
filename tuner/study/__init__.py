"""The study: which configuration next, what Optuna is told, the finals, going on after an interruption."""

from tuner.study.cards import cards_of
from tuner.study.job import Job, Options, RuleBook, Space
from tuner.study.kept import KeptStudy, find_study, read_study
from tuner.study.listing import StudyEntry, list_studies, profile_path
from tuner.study.load import Offer, make_offer
from tuner.study.loop import tune
from tuner.study.manage import delete_study, rename_study
from tuner.study.names import fresh_name, study_name
from tuner.study.plan import make_plan
from tuner.study.records import Observer, Plan, TrialRecord, TuneResult
from tuner.study.storage import StudyPlace, exists, join_study
from tuner.study.windows import FINALS_WINDOW, SEARCH_WINDOW, split
from tuner.study.worker import work

__all__ = [
    "FINALS_WINDOW",
    "SEARCH_WINDOW",
    "Job",
    "KeptStudy",
    "Observer",
    "Offer",
    "Options",
    "Plan",
    "RuleBook",
    "Space",
    "StudyEntry",
    "StudyPlace",
    "TrialRecord",
    "TuneResult",
    "cards_of",
    "delete_study",
    "exists",
    "find_study",
    "fresh_name",
    "list_studies",
    "make_offer",
    "join_study",
    "make_plan",
    "profile_path",
    "read_study",
    "rename_study",
    "split",
    "study_name",
    "tune",
    "work",
]
