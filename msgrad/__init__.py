"""msgrad decides, proves and explains which weights of a MindSpore network may change."""

# fmt: off
# isort: off

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgrad import errors as errors
    from msgrad import runs as runs
    from msgrad.auditing import (
        Audit, AuditRow, Explanation, Finding, LayerRecord, Reason, WeightMonitor, audit, explain
    )
    from msgrad.backend import use_device
    from msgrad.checkpoints import (
        CheckpointMovement, LoadReport, diff_checkpoints, load_weights, save_trainable
    )
    from msgrad.errors import (
        ArgumentError, ArgumentTypeError, AuditError, CheckpointError, ConflictError, DeviceError,
        FrozenWeightError, MissingPackageError, MsgradError, NoMatchError, PlanError, ShapeError
    )
    from msgrad.freezing import Freeze, freeze, frozen_state, is_frozen, unfreeze
    from msgrad.network import (
        CellPattern, CellSummary, Movement, MovementRow, Pattern, Selection, Snapshot, Summary,
        fingerprint, reach, select, summary
    )
    from msgrad.optim import HoldOptimizer, layer_decay, no_decay, param_groups
    from msgrad.plans import Applied, AuditSettings, Plan, PlanRule, PlanStage, Until
    from msgrad.replay import Replay, replay_frozen
    from msgrad.training import Position, Schedule, Stage, TrainStep, gradual_stages
    from msgrad.updates import (
        MovingAverage, WeightUpdates, each_sample, parameters_to_vector, rules, update_weights,
        vector_to_parameters
    )
    from msgrad.wrappers import (
        CellWrapper, LoRA, PrintWeights, ReverseGradient, ScaleGradient, StopGradient, no_grad,
        reverse_gradient, scale_gradient, stop_gradient, unwrap, wrap, wrapped
    )

__version__ = "0.1.0"

__all__ = [
    "Applied", "ArgumentError", "ArgumentTypeError", "Audit", "AuditError", "AuditRow",
    "AuditSettings", "CellPattern", "CellSummary", "CellWrapper", "CheckpointError",
    "CheckpointMovement", "ConflictError", "DeviceError", "Explanation", "Finding", "Freeze",
    "FrozenWeightError", "HoldOptimizer", "LayerRecord", "LoRA", "LoadReport",
    "MissingPackageError", "Movement", "MovementRow", "MovingAverage", "MsgradError",
    "NoMatchError", "Pattern", "Plan", "PlanError", "PlanRule", "PlanStage", "Position",
    "PrintWeights", "Reason", "Replay", "ReverseGradient", "ScaleGradient", "Schedule",
    "Selection", "ShapeError", "Snapshot", "Stage", "StopGradient", "Summary", "TrainStep",
    "Until", "WeightMonitor", "WeightUpdates", "audit", "diff_checkpoints", "each_sample",
    "explain", "fingerprint", "freeze", "frozen_state", "gradual_stages", "is_frozen",
    "layer_decay", "load_weights", "no_decay", "no_grad", "param_groups",
    "parameters_to_vector", "reach", "replay_frozen", "reverse_gradient", "rules",
    "save_trainable", "scale_gradient", "select", "stop_gradient", "summary", "unfreeze",
    "unwrap", "update_weights", "use_device", "vector_to_parameters", "wrap", "wrapped"
]

# Where the names above are looked for; errors need no MindSpore.
_FACES = (
    *("errors", "network", "freezing", "wrappers", "updates", "optim", "checkpoints"),
    *("training", "replay", "auditing", "plans", "backend"),
)
_MODULES = ("errors", "runs")

# not for type checkers, which would take any misspelt name of the package for one of these
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is asked for: MindSpore is loaded by the first name that needs it."""
        if name in _MODULES:
            return import_module(f"msgrad.{name}")
        if name in __all__:
            for face in _FACES:
                module = import_module(f"msgrad.{face}")
                if hasattr(module, name):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        raise AttributeError(f"module 'msgrad' has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        """List what can be asked for, whether it has been imported or not."""
        return sorted({*globals(), *__all__, *_MODULES})
