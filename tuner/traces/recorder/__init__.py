"""The recorder: a proxy in front of a server that writes the traffic through it as a trace."""

from tuner.traces.recorder.files import RowFiles
from tuner.traces.recorder.proxy import Recorder
from tuner.traces.recorder.rows import RowMaker, Tally
from tuner.traces.recorder.serve import record

__all__ = ["Recorder", "RowFiles", "RowMaker", "Tally", "record"]
