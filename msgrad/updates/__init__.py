"""Weights changed by functions of one's own; ready rules; the moving average."""

from msgrad.updates import rules
from msgrad.updates._average import MovingAverage
from msgrad.updates._each_sample import each_sample
from msgrad.updates._readable import check_callable, check_readable
from msgrad.updates._update import WeightUpdates, update_weights
from msgrad.updates._vector import parameters_to_vector, vector_to_parameters

# fmt: off
__all__ = [
    "MovingAverage", "WeightUpdates", "check_callable", "check_readable", "each_sample",
    "parameters_to_vector", "rules", "update_weights", "vector_to_parameters"
]
# fmt: on
