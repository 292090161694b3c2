"""Profiles: what won and how it was measured, and every form that deploys it."""

from tuner.profiles.codec import (
    measured_from_json,
    measured_to_json,
    profile_from_json,
    profile_to_json,
)
from tuner.profiles.cost import GpuCost, cost_lines, cost_object, parse_gpu_cost
from tuner.profiles.evidence import (
    CardsRow,
    Drift,
    FinalRow,
    FlagGain,
    PredictionRow,
    SeparateQueue,
    Shift,
    Tie,
)
from tuner.profiles.expiry import Check, Finding, Here, check_profile
from tuner.profiles.exporters import export, formats
from tuner.profiles.files import load_profile, save_profile
from tuner.profiles.profile import SCHEMA_VERSION, Measured, Profile, UsersRow
from tuner.profiles.traffic import traffic_of

__all__ = [
    "SCHEMA_VERSION",
    "Check",
    "Drift",
    "FinalRow",
    "Finding",
    "FlagGain",
    "GpuCost",
    "Here",
    "Measured",
    "CardsRow",
    "PredictionRow",
    "Profile",
    "SeparateQueue",
    "Shift",
    "Tie",
    "UsersRow",
    "check_profile",
    "cost_lines",
    "cost_object",
    "export",
    "formats",
    "load_profile",
    "measured_from_json",
    "measured_to_json",
    "parse_gpu_cost",
    "profile_from_json",
    "profile_to_json",
    "save_profile",
    "traffic_of",
]
