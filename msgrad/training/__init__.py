"""The train step, its stages and their schedule; saves; ranks compared."""

# fmt: off
# isort: off

from msgrad.training._gradient_calls import gradient_functions, misordered
from msgrad.training._loss import FunctionNetwork, guarded, raise_refusal
from msgrad.training._schedule import Schedule, Stage, gradual_stages
from msgrad.training._step import (
    Position, TrainStep
)

__all__ = [
    "FunctionNetwork", "Position", "Schedule", "Stage", "TrainStep", "gradient_functions",
    "gradual_stages", "guarded", "misordered", "raise_refusal"
]
