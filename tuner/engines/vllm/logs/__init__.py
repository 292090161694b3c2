"""Reads vLLM's logs: ready or not, why not, what to do, and the figures that vLLM prints."""

from tuner.engines.vllm.logs.phases import phase_of
from tuner.engines.vllm.logs.reader import read_log, read_log_file
from tuner.engines.vllm.logs.report import LogReport

__all__ = ["LogReport", "phase_of", "read_log", "read_log_file"]
