"""What may be tried: the search space, the flags that a vLLM accepts, and what arithmetic refuses."""

from tuner.space.argv import rendered, to_argv
from tuner.space.config import LaunchConfig
from tuner.space.feasible import feasible_share
from tuner.space.flag import Flag, FlagKind
from tuner.space.flags import (
    FlagTable,
    flag_table,
    installed_flag_table,
    quality_flags,
    shipped_versions,
)
from tuner.space.installed import Installed, find_vllm
from tuner.space.parameter import Parameter, ParameterKind
from tuner.space.space import SearchSpace, load_space

__all__ = [
    "Flag",
    "FlagKind",
    "FlagTable",
    "Installed",
    "LaunchConfig",
    "Parameter",
    "ParameterKind",
    "SearchSpace",
    "feasible_share",
    "find_vllm",
    "flag_table",
    "installed_flag_table",
    "load_space",
    "quality_flags",
    "rendered",
    "shipped_versions",
    "to_argv",
]
