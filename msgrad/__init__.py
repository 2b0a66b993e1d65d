"""msgrad decides, proves and explains which weights of a MindSpore network may change."""

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
from msgrad._select import Selection, select
from msgrad._snapshot import Movement, Snapshot

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AuditError",
    "CheckpointError",
    "ConflictError",
    "DeviceError",
    "FrozenWeightError",
    "Movement",
    "MsgradError",
    "NoMatchError",
    "PlanError",
    "Selection",
    "ShapeError",
    "Snapshot",
    "select",
]
