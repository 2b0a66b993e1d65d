"""msgrad decides, proves and explains which weights of a MindSpore network may change."""

from msgrad import rules
from msgrad._device import use_device
from msgrad._errors import (
    ArgumentError,
    ArgumentTypeError,
    AuditError,
    CheckpointError,
    ConflictError,
    DeviceError,
    FrozenWeightError,
    MsgradError,
    NoMatchError,
    PlanError,
    ShapeError,
)
from msgrad._freeze import Freeze, freeze, frozen_state, is_frozen, unfreeze
from msgrad._gradient import reverse_gradient, scale_gradient, stop_gradient
from msgrad._print import PrintWeights
from msgrad._reach import reach
from msgrad._scale import ReverseGradient, ScaleGradient
from msgrad._select import Selection, select
from msgrad._snapshot import Movement, Snapshot
from msgrad._step import TrainStep
from msgrad._stop import StopGradient
from msgrad._summary import Summary, summary
from msgrad._update import WeightUpdates, update_weights
from msgrad._wrap import unwrap, wrap, wrapped
from msgrad._wrapper import CellWrapper

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AuditError",
    "CellWrapper",
    "CheckpointError",
    "ConflictError",
    "DeviceError",
    "Freeze",
    "FrozenWeightError",
    "Movement",
    "MsgradError",
    "NoMatchError",
    "PlanError",
    "PrintWeights",
    "ReverseGradient",
    "ScaleGradient",
    "Selection",
    "ShapeError",
    "Snapshot",
    "StopGradient",
    "Summary",
    "TrainStep",
    "WeightUpdates",
    "freeze",
    "frozen_state",
    "is_frozen",
    "reach",
    "reverse_gradient",
    "rules",
    "scale_gradient",
    "select",
    "stop_gradient",
    "summary",
    "unfreeze",
    "unwrap",
    "update_weights",
    "use_device",
    "wrap",
    "wrapped",
]
