"""The real engine: vLLM servers, started warm or plainly, watched, stopped to the last process."""

from tuner.engines.vllm.engine import VllmEngine
from tuner.engines.vllm.launchers import LauncherKind
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.server import VllmServer

__all__ = ["LauncherKind", "Limits", "VllmEngine", "VllmServer"]
