"""A plain model in NumPy of what a sequence of calls does to the bits of one small network."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

X = np.array(
    [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [-2.0, 1.0, 0.5], [1.0, 0.75, -1.25]], np.float32
)
K = np.array([[1.0, -0.5, 0.25], [0.5, 2.0, -1.0], [-0.25, 1.0, 0.5], [2.0, 0.5, 1.0]], np.float32)
RATE, MOMENTUM, DECAY, STATISTICS = 0.125, 0.5, 0.25, 0.75
LINES = {"a.weight": 1.0, "b.weight": 2.0, "c.weight": -3.0}
WEIGHTS = (*LINES, "norm.gamma", "norm.beta")
MEAN, VARIANCE = "norm.moving_mean", "norm.moving_variance"
CELLS = {"a": ("a.weight",), "b": ("b.weight",), "c": ("c.weight",), "norm": WEIGHTS[3:]}


def start() -> dict[str, np.ndarray]:
    """Return the values that every sequence begins with."""
    ramp = np.arange(1, 4, dtype=np.float32)
    return {
        "a.weight": ramp,
        "b.weight": -ramp,
        "c.weight": ramp / 2,
        "norm.gamma": ramp / 4,
        "norm.beta": ramp / 8,
        MEAN: np.zeros(3, np.float32),
        VARIANCE: np.ones(3, np.float32),
    }


class Model:
    """Values and momentum by name, and all that decides which of them move.

    A claim is a set of names with its wish for statistics; what an unfreeze lifted comes back when
    that is undone.
    """

    def __init__(self) -> None:
        self.values = start()
        self.momentum: dict[str, np.ndarray] = {name: np.zeros(3, np.float32) for name in WEIGHTS}
        self.claims: list[dict[str, Any]] = []
        self.wrapped: dict[str, float | None] = {}  # None stops, a number scales
        self.held: set[str] = set()
        self.held_rows: dict[str, set[int]] = {}
        self.average: dict[str, np.ndarray] | None = None

    def freeze(self, names: set[str], *, statistics: bool) -> dict[str, Any]:
        claim = {"on": set(names), "statistics": statistics, "undone": False}
        self.claims.append(claim)
        return claim

    def unfreeze(self, names: set[str]) -> list[tuple[dict[str, Any], str]]:
        gone = [(c, n) for c in self.claims for n in sorted(names) if n in c["on"]]
        for claim, name in gone:
            claim["on"].discard(name)
        return gone

    def undo(self, change: Any) -> None:
        if isinstance(change, dict):
            change["on"].clear()
            change["undone"] = True
        for claim, name in change if isinstance(change, list) else ():
            if not claim["undone"]:
                claim["on"].add(name)

    @property
    def frozen(self) -> set[str]:
        return set().union(*(c["on"] for c in self.claims))

    @property
    def stopped(self) -> set[str]:
        return {n for cell, by in self.wrapped.items() if by is None for n in CELLS[cell]}

    @property
    def trainable(self) -> list[str]:
        """What the optimizer has, in network order."""
        return [n for n in WEIGHTS if n not in self.frozen | self.stopped]

    @property
    def adapts(self) -> bool:
        """Whether the norm takes the statistics of the batch."""
        held = set().union(*(c["on"] for c in self.claims if c["statistics"]))
        return not set(CELLS["norm"]) <= held

    def step(self) -> None:
        """Do what one step does; momentum of what has left the optimizer waits."""
        gradients = self.gradients()
        for name in self.trainable:
            if name in self.held:
                continue
            moves = np.array([row not in self.held_rows.get(name, ()) for row in range(3)])
            decay = DECAY if name in LINES else 0.0
            momentum = MOMENTUM * self.momentum[name] + gradients[name] + decay * self.values[name]
            self.momentum[name] = np.where(moves, momentum, self.momentum[name])
            moved = self.values[name] - RATE * self.momentum[name]
            self.values[name] = np.where(moves, moved, self.values[name])
        if self.adapts:
            for name, now in ((MEAN, X.mean(0)), (VARIANCE, X.var(0, ddof=1))):
                self.values[name] = STATISTICS * self.values[name] + (1 - STATISTICS) * now

    def gradients(self) -> dict[str, np.ndarray]:
        """Differentiate the loss by hand: lines are linear, the norm is a weighted sum."""
        mean, variance = (
            (X.mean(0), X.var(0)) if self.adapts else (self.values[MEAN], self.values[VARIANCE])
        )
        normal = (X - mean) / np.sqrt(variance + 1e-5)
        found = {name: factor * X.sum(0) for name, factor in LINES.items()}
        found |= {"norm.gamma": (K * normal).sum(0), "norm.beta": K.sum(0)}
        for cell, by in self.wrapped.items():
            for name in CELLS[cell]:
                found[name] = found[name] * (by or 0.0)
        return found

    def saved(self) -> dict[str, Any]:
        """Return what a save of the step holds."""
        kept = ("values", "momentum", "held", "held_rows")
        return copy.deepcopy({name: getattr(self, name) for name in kept})

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what a save holds."""
        for name, value in copy.deepcopy(saved).items():
            setattr(self, name, value)
