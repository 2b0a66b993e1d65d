"""msgrad decides, proves and explains which weights of a MindSpore network may change."""

from msgrad import rules
from msgrad._audit import Audit, audit
from msgrad._average import MovingAverage
from msgrad._compare import diff_checkpoints
from msgrad._device import use_device
from msgrad._each_sample import each_sample
from msgrad._errors import (
    ArgumentError,
    ArgumentTypeError,
    AuditError,
    CheckpointError,
    ConflictError,
    DeviceError,
    FrozenWeightError,
    MissingPackageError,
    MsgradError,
    NoMatchError,
    PlanError,
    ShapeError,
)
from msgrad._explain import Explanation, explain
from msgrad._fingerprint import fingerprint
from msgrad._freeze import Freeze, freeze, frozen_state, is_frozen, unfreeze
from msgrad._gradient import reverse_gradient, scale_gradient, stop_gradient
from msgrad._groups import layer_decay, no_decay, param_groups
from msgrad._hold import HoldOptimizer
from msgrad._load_weights import LoadReport, load_weights
from msgrad._monitor import WeightMonitor
from msgrad._no_grad import no_grad
from msgrad._plan import Plan
from msgrad._print import PrintWeights
from msgrad._reach import reach
from msgrad._records import LayerRecord
from msgrad._replay import Replay, replay_frozen
from msgrad._save_trainable import save_trainable
from msgrad._scale import ReverseGradient, ScaleGradient
from msgrad._schedule import Schedule
from msgrad._select import Selection, select
from msgrad._snapshot import Movement, Snapshot
from msgrad._stage import Stage, gradual_stages
from msgrad._step import TrainStep
from msgrad._stop import StopGradient
from msgrad._summary import Summary, summary
from msgrad._update import WeightUpdates, update_weights
from msgrad._vector import parameters_to_vector, vector_to_parameters
from msgrad._wrap import unwrap, wrap, wrapped
from msgrad._wrapper import CellWrapper

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Audit",
    "AuditError",
    "CellWrapper",
    "CheckpointError",
    "ConflictError",
    "DeviceError",
    "Explanation",
    "Freeze",
    "FrozenWeightError",
    "HoldOptimizer",
    "LayerRecord",
    "LoadReport",
    "MissingPackageError",
    "Movement",
    "MovingAverage",
    "MsgradError",
    "NoMatchError",
    "Plan",
    "PlanError",
    "PrintWeights",
    "Replay",
    "ReverseGradient",
    "ScaleGradient",
    "Schedule",
    "Selection",
    "ShapeError",
    "Snapshot",
    "Stage",
    "StopGradient",
    "Summary",
    "TrainStep",
    "WeightMonitor",
    "WeightUpdates",
    "audit",
    "diff_checkpoints",
    "each_sample",
    "explain",
    "fingerprint",
    "freeze",
    "frozen_state",
    "gradual_stages",
    "is_frozen",
    "layer_decay",
    "load_weights",
    "no_decay",
    "no_grad",
    "param_groups",
    "parameters_to_vector",
    "reach",
    "replay_frozen",
    "reverse_gradient",
    "rules",
    "save_trainable",
    "scale_gradient",
    "select",
    "stop_gradient",
    "summary",
    "unfreeze",
    "unwrap",
    "update_weights",
    "use_device",
    "vector_to_parameters",
    "wrap",
    "wrapped",
]
