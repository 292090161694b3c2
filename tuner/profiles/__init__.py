"""Profiles: what won and how it was measured, and every form that deploys it."""

from tuner.profiles.codec import (
    measured_from_json,
    measured_to_json,
    profile_from_json,
    profile_to_json,
)
from tuner.profiles.cost import GpuCost
from tuner.profiles.evidence import (
    Drift,
    FinalRow,
    FlagGain,
    PredictionRow,
    SeparateQueue,
    Shift,
    Tie,
)
from tuner.profiles.exporters import export, formats
from tuner.profiles.files import load_profile, save_profile
from tuner.profiles.profile import SCHEMA_VERSION, Measured, Profile, UsersRow

__all__ = [
    "SCHEMA_VERSION",
    "Drift",
    "FinalRow",
    "FlagGain",
    "GpuCost",
    "Measured",
    "PredictionRow",
    "Profile",
    "SeparateQueue",
    "Shift",
    "Tie",
    "UsersRow",
    "export",
    "formats",
    "load_profile",
    "measured_from_json",
    "measured_to_json",
    "profile_from_json",
    "profile_to_json",
    "save_profile",
]
