"""What may be tried: the search space, the flags that a vLLM accepts, and what arithmetic refuses."""

from tuner.space.argv import rendered, to_argv
from tuner.space.config import LaunchConfig
from tuner.space.defaults import effective_defaults
from tuner.space.fit import check_feasible, gpus_needed
from tuner.space.flag import Flag, FlagKind
from tuner.space.flags import (
    FlagTable,
    flag_table,
    installed_flag_table,
    quality_flags,
    shipped_versions,
)
from tuner.space.installed import Installed, find_vllm
from tuner.space.memory import MemoryModel, MemoryPlan, capture_sizes, plan_memory
from tuner.space.parameter import Parameter, ParameterKind
from tuner.space.quality import with_quality_flags, without_quality_flags
from tuner.space.refusal import FlagBound, Refusal
from tuner.space.rules import Rules
from tuner.space.space import SearchSpace, load_space

__all__ = [
    "Flag",
    "FlagBound",
    "FlagKind",
    "FlagTable",
    "Installed",
    "LaunchConfig",
    "MemoryModel",
    "MemoryPlan",
    "Parameter",
    "ParameterKind",
    "Refusal",
    "Rules",
    "SearchSpace",
    "capture_sizes",
    "check_feasible",
    "effective_defaults",
    "find_vllm",
    "flag_table",
    "gpus_needed",
    "installed_flag_table",
    "load_space",
    "plan_memory",
    "quality_flags",
    "rendered",
    "shipped_versions",
    "to_argv",
    "with_quality_flags",
    "without_quality_flags",
]
