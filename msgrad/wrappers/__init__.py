"""Cells around cells, put in and taken out without touching a name."""

# fmt: off
# isort: off

from msgrad.wrappers._gradient import (
    ReverseGradient, ScaleGradient, StopGradient, reverse_gradient, scale_gradient, stop_gradient
)
from msgrad.wrappers._lora import LoRA
from msgrad.wrappers._no_grad import made_by_no_grad, no_grad
from msgrad.wrappers._print import PrintWeights
from msgrad.wrappers._wrap import (
    check_wrappable, stops_of, take_off, unwrap, wrap, wrap_cells, wrap_changes, wrapped
)
from msgrad.wrappers._wrapper import CellWrapper

__all__ = [
    "CellWrapper", "LoRA", "PrintWeights", "ReverseGradient", "ScaleGradient", "StopGradient",
    "check_wrappable", "made_by_no_grad", "no_grad", "reverse_gradient", "scale_gradient",
    "stop_gradient", "stops_of", "take_off", "unwrap", "wrap", "wrap_cells", "wrap_changes",
    "wrapped"
]
