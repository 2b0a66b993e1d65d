"""Every exception of msgrad: one base class, and beside it the builtin that a caller expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a plan or a config; printed as ``plan.yaml:12: what is wrong``.

    Attributes:
        file: The file, as it was given; None for what comes from Python.
        line: The line in it, counted from 1.
        message: What is wrong, and the remedy.
    """

    file: str | None
    line: int | None
    message: str

    def __str__(self) -> str:
        line = f":{self.line}" if self.line is not None else ""
        return f"{self.file}{line}: {self.message}" if self.file is not None else self.message


class PlanError(MsgradError, ValueError):
    """A plan or a config file cannot be used.

    Attributes:
        problems: All that is wrong, a line of the message each.
    """

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message or "\n".join(map(str, problems)))
        self.problems = list(problems) or [Problem(None, None, message)]


class AuditError(MsgradError, AssertionError):
    """An audit found problems."""


class CheckpointError(MsgradError, ValueError):
    """A checkpoint cannot be read, written or used.

    Attributes:
        differences: What does not fit between a file and a network, all of it.
    """

    def __init__(self, message: str, *, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class DeviceError(MsgradError, RuntimeError):
    """A device is asked for that cannot be used."""


class MissingPackageError(MsgradError, ImportError):
    """An optional package is needed that is not installed."""
