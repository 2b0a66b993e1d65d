"""A rule of a plan: its kind, its patterns, and the fields that it decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgrad._files import plain
from msgrad.plans._document import KeyPath
from msgrad.plans._schema import PATTERNS, ROWS, SWITCH, Kind, UnfitError, number, one_of

_POWER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_AT = one_of("output", "input")
_WHEN = one_of("before_forward", "after_gradient", "after_step")


def _function(value: Any) -> Any:
    if callable(value) or (isinstance(value, str) and value.strip()):
        return value
    raise UnfitError("is no function; give a ready rule such as clip, or file.py:function")


def _arguments(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _argument(item) for key, item in value.items()}
    return [_argument(item) for item in (value if isinstance(value, (list, tuple)) else [value])]


def _argument(value: Any) -> Any:
    # YAML reads 1e-3 as text
    return float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value


_FACTOR = number("give 0 or more, or a rule of kind reverse")
# What each kind of rule may say beside its patterns.
FIELDS: dict[str, dict[str, Kind]] = {
    "freeze": {"statistics": SWITCH, "dropout": SWITCH},
    "unfreeze": {},
    "stop": {"at": _AT},
    "scale": {"by": _FACTOR, "at": _AT},
    "reverse": {"by": number("give 0 or more, or a rule of kind scale"), "at": _AT},
    "group": {
        "lr_scale": number("give 0 or more, or a rule of kind freeze"),
        "weight_decay": number("give 0 or more"),
    },
    "update": {
        "fn": Kind(_function),
        "args": Kind(_arguments),
        "when": _WHEN,
        "force": SWITCH,
    },
    "hold": {"rows": ROWS},
}
KINDS: dict[str, dict[str, Kind]] = {
    kind: {kind: PATTERNS, **fields} for kind, fields in FIELDS.items()
}
CELL_KINDS = ("stop", "scale", "reverse")


@dataclass(frozen=True)
class PlanRule:
    """One rule of a plan, read and checked by itself.

    Attributes:
        kind: One of `FIELDS`.
        patterns: What it takes, parameters or cells.
        fields: What it says, as far as it was given.
        name: What to call it: ``rule 2``.
        location: Where it stands: ``plan.yaml:14``, or nothing.
        path: Where it stands in its document.

    Examples:
        >>> PlanRule("freeze", ("conv1",), {}, "rule 2", "plan.yaml:14").label
        'rule 2 (plan.yaml:14)'
    """

    kind: str
    patterns: tuple[Any, ...]
    fields: Mapping[str, Any]
    name: str = field(default="rule", compare=False)
    location: str = field(default="", compare=False)
    path: KeyPath = field(default=(), compare=False)

    @property
    def label(self) -> str:
        """Its name, and the line of the file where it stands."""
        return f"{self.name} ({self.location})" if self.location else f"{self.name} of the plan"

    @property
    def of_cells(self) -> bool:
        """Whether its patterns choose cells instead of parameters."""
        return self.kind in CELL_KINDS

    def says(self) -> dict[str, Any]:
        """Return what it decides, field by field; the last rule that says a field decides it."""
        if self.kind in ("freeze", "unfreeze"):
            return {"frozen": self.kind == "freeze", **self.fields}
        if self.kind == "stop":
            return {"stop at": self.fields.get("at", "output")}
        if self.kind == "update":
            function = {name: self.fields.get(name) for name in ("fn", "args", "force")}
            return {f"update {self.when}": function}
        if self.kind == "hold":
            return {"hold rows": self.fields.get("rows")}
        if self.kind == "reverse":
            return {"reverse by": 1.0, **{f"reverse {n}": v for n, v in self.fields.items()}}
        prefix = f"{self.kind} " if self.of_cells else ""
        return {f"{prefix}{name}": value for name, value in self.fields.items()}

    @property
    def when(self) -> str:
        """The point of a step at which an update runs."""
        return str(self.fields.get("when", "after_step"))

    def to_dict(self) -> dict[str, Any]:
        """Return it as it could be written."""
        return {self.kind: written(self.patterns), **plain(self.fields)}


def written(patterns: tuple[Any, ...]) -> Any:
    """Return patterns as they could be written: one by itself, several as a list."""
    return patterns[0] if len(patterns) == 1 else list(patterns)
