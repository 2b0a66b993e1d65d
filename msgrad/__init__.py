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

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AuditError",
    "CheckpointError",
    "ConflictError",
    "DeviceError",
    "FrozenWeightError",
    "MsgradError",
    "NoMatchError",
    "PlanError",
    "ShapeError",
]
