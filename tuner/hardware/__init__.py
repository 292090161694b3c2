"""GPUs: data-sheet figures, and which are here."""

from tuner.hardware.catalogue import catalogue, find_gpu
from tuner.hardware.detect import detect, driver_version
from tuner.hardware.gpu import Gpu, Platform, card_of
from tuner.hardware.machine import describe_machine

__all__ = [
    "Gpu",
    "Platform",
    "card_of",
    "catalogue",
    "describe_machine",
    "detect",
    "driver_version",
    "find_gpu",
]
