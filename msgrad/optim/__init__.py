"""Optimizers: their state and rates by weight, groups, holding at run time."""

# fmt: off
# isort: off

from msgrad.optim._clip import GATHERED, AccumulatingOptimizer, ClippedOptimizer
from msgrad.optim._combined import as_one
from msgrad.optim._groups import layer_decay, no_decay, param_groups
from msgrad.optim._hold import HoldOptimizer, blank
from msgrad.optim._recorder import GradientRecorder, put_back, put_instead
from msgrad.optim._settings import check_keywords, check_settings, made_with
from msgrad.optim._state import (
    Rates, own_parameters, owner_of, rates_by_weight, rates_of, replace_parameters
)
from msgrad.optim._wrapper import OptimizerWrapper, optimizers_in, parts_of

__all__ = [
    "AccumulatingOptimizer", "ClippedOptimizer", "GATHERED", "GradientRecorder",
    "HoldOptimizer", "OptimizerWrapper", "Rates", "as_one", "blank", "check_keywords",
    "check_settings", "layer_decay", "made_with", "no_decay", "optimizers_in", "own_parameters",
    "owner_of", "param_groups", "parts_of", "put_back", "put_instead", "rates_by_weight",
    "rates_of", "replace_parameters"
]
