"""Every exception of msgrad: one base class, and beside it the builtin that a caller expects."""

from __future__ import annotations

from collections.abc import Sequence


class MsgradError(Exception):
    """Base of all errors that msgrad raises."""


class ArgumentError(MsgradError, ValueError):
    """An argument has a value that cannot be used."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type that cannot be used."""


class NoMatchError(MsgradError, ValueError, LookupError):
    """A pattern selects nothing.

    Attributes:
        pattern: The pattern as it was given.
        nearest: The nearest existing names, best first.
    """

    def __init__(
        self, message: str, *, pattern: object = None, nearest: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.pattern = pattern
        self.nearest = list(nearest)


class ConflictError(MsgradError, ValueError):
    """Two demands on one parameter cannot both be met."""


class ShapeError(MsgradError, ValueError):
    """A value has another shape or dtype than the weight it is meant for."""


class FrozenWeightError(MsgradError, ValueError):
    """A change is aimed at a frozen weight."""


class PlanError(MsgradError, ValueError):
    """A plan or a config file cannot be used."""


class AuditError(MsgradError, AssertionError):
    """An audit found problems."""


class CheckpointError(MsgradError, ValueError):
    """A checkpoint cannot be read, written or used."""


class DeviceError(MsgradError, RuntimeError):
    """A device is asked for that cannot be used."""


class MissingPackageError(MsgradError, ImportError):
    """An optional package is needed that is not installed."""
