"""Recorded traffic: read from many formats, inspected, cut into windows and scaled to any load."""

from tuner.traces.changes import compress_time, window
from tuner.traces.dispersion import cv_of_gaps, dispersion, index_of_dispersion
from tuner.traces.inspection import Inspection, inspect
from tuner.traces.load import load_trace, shipped_trace, write_trace
from tuner.traces.loads import NestedLoads
from tuner.traces.plot import plot_svg
from tuner.traces.steps import spread_steps, time_step_s
from tuner.traces.synthesis import Lengths, SupportChat, synthesize
from tuner.traces.trace import Trace, TraceSource

__all__ = [
    "Inspection",
    "Lengths",
    "NestedLoads",
    "SupportChat",
    "Trace",
    "TraceSource",
    "compress_time",
    "cv_of_gaps",
    "dispersion",
    "index_of_dispersion",
    "inspect",
    "load_trace",
    "plot_svg",
    "shipped_trace",
    "spread_steps",
    "synthesize",
    "time_step_s",
    "window",
    "write_trace",
]
