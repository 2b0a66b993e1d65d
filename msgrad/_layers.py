"""The layers of an audit: what was found about the weights of a cell, as one mark of a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgrad._rows import GOOD, VERDICTS, AuditRow

# What moves without an optimizer and without being meant to stay says nothing about training.
_BESIDE = frozenset({"statistic", "buffer", "integer"})


@dataclass(frozen=True)
class Layer:
    """One line of a picture.

    Attributes:
        label: The path of the cell, or of the first and the last of several.
        state: "held", "trained", "part held", or the worst verdict.
        gradient: Norm of the gradient over all its weights; None where there is none.
        change: Largest change of an element of its weights.
        moved: Whether a bit of its weights differs.
    """

    label: str
    state: str
    gradient: float | None
    change: float
    moved: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.state in (*GOOD, "part held")


def layers_of_rows(rows: Sequence[AuditRow], most: int) -> list[Layer]:
    """Group parameters by the cells that own them, by fewer and larger cells where those are many.

    Args:
        rows: What was found, in network order.
        most: The number of layers not to be exceeded.

    Returns:
        The layers in network order. Running statistics count only where nothing else is there, or
        where something is wrong with them.
    """
    by_name = {row.name: row for row in rows}
    owners = {name: name.rpartition(".")[0] or name for name in by_name}
    return [
        _layer(label, [by_name[name] for name in names])
        for label, names in grouped(owners, most).items()
    ]


def grouped(owners: Mapping[str, str], most: int) -> dict[str, list[str]]:
    """Group things by the cells that own them, or by larger cells around those.

    Args:
        owners: The path of the cell that owns each thing, in network order.
        most: The number of groups not to be exceeded; cells side by side are joined at last.

    Returns:
        The things of each group by its label, in network order.

    Examples:
        >>> grouped({"a.0.w": "a.0", "a.0.b": "a.0", "a.1.w": "a.1"}, 1)
        {'a': ['a.0.w', 'a.0.b', 'a.1.w']}
    """
    deepest = max((owner.count(".") for owner in owners.values()), default=0)
    groups: dict[str, list[str]] = {}
    for depth in range(deepest + 1, 0, -1):
        groups = {}
        for name, owner in owners.items():
            groups.setdefault(".".join(owner.split(".")[:depth]), []).append(name)
        if len(groups) <= most:
            return groups
    found = list(groups.items())
    size = math.ceil(len(found) / most)
    return dict(_joined(found[start : start + size]) for start in range(0, len(found), size))


def _joined(groups: Sequence[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    first, last = groups[0][0], groups[-1][0]
    label = first if first == last else f"{first} … {last}"
    return label, [name for _, inside in groups for name in inside]


def _layer(label: str, rows: Sequence[AuditRow]) -> Layer:
    shown = [r for r in rows if r.rule not in _BESIDE or not r.ok] or rows
    gradients = [row.gradient for row in shown if row.gradient is not None]
    return Layer(
        label,
        _state(shown),
        math.hypot(*gradients) if gradients else None,
        _largest([row.max_change for row in shown]),
        any(row.bits_changed for row in shown),
    )


def _state(rows: Sequence[AuditRow]) -> str:
    verdicts = {row.verdict for row in rows}
    worst = min(verdicts, key=VERDICTS.index)
    return "part held" if worst == "trained" and "held" in verdicts else worst


def _largest(changes: Sequence[float]) -> float:
    broken = [change for change in changes if not math.isfinite(change)]
    return broken[0] if broken else max(changes)
