"""vLLM simulated: its V1 scheduler in virtual time over a roofline of the GPU and the model."""

from tuner.engines.simulated.coefficients import Coefficients, default_coefficients
from tuner.engines.simulated.engine import SimulatedEngine
from tuner.engines.simulated.predictor import SimulatedPredictor
from tuner.engines.simulated.server import SimulatedServer

__all__ = ["Coefficients", "SimulatedEngine", "SimulatedPredictor", "SimulatedServer", "default_coefficients"]
