"""Plays a sequence of calls on msgrad and on the model, and compares after each call."""

from __future__ import annotations

import argparse
import copy
import random
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.sequences.model import CELLS, DECAY, LINES, MOMENTUM, RATE, WEIGHTS, K, Model, X, start

Action = tuple[Any, ...]
BATCH, FACTORS = Tensor(X), Tensor(K)
MOST = 14


class Line(nn.Cell):
    """A weight whose gradient is the sum of the batch times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros(3, np.float32)), name="weight")
        self.factor = factor

    def construct(self, x: Tensor) -> Tensor:
        return (self.weight * x).sum() * self.factor


class Network(nn.Cell):
    """Three lines and a norm, whose gradients are known by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (Line(factor) for factor in LINES.values())
        self.norm = nn.BatchNorm1d(3, momentum=0.75)
        for name, parameter in self.parameters_dict().items():
            parameter.set_data(Tensor(start()[name]))

    def construct(self, x: Tensor, factors: Tensor) -> Tensor:
        return self.a(x) + self.b(x) + self.c(x) + (self.norm(x) * factors).sum()


def optimizer(parameters: list[Parameter]) -> nn.Cell:
    return mg.HoldOptimizer(nn.Momentum(parameters, RATE, MOMENTUM, weight_decay=DECAY))


def halved(w: Tensor) -> Tensor:
    return w * 0.5


class Play:
    """One network under msgrad, and its model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = Network()
        self.model = Model()
        self.changes: list[tuple[mg.Freeze, Any]] = []
        self.saved: dict[str, Any] | None = None
        self.begin()

    def begin(self) -> None:
        """Make a step over the network, whose optimizer knows nothing yet."""
        self.step = mg.TrainStep(self.net, optimizer).set_train()
        self.model.momentum = {name: np.zeros(3, np.float32) for name in WEIGHTS}
        self.model.held, self.model.held_rows = set(), {}

    def play(self, action: Action) -> None:
        """Do one call and compare; what may not move has to have the same bits."""
        kind, *rest = action
        before = {name: value.copy() for name, value in self.values().items()}
        expected = {name: value.copy() for name, value in self.model.values.items()}
        getattr(self, kind)(*rest)
        now = self.values()
        for name, value in self.model.values.items():
            if np.array_equal(expected[name], value):
                assert before[name].tobytes() == now[name].tobytes(), f"{action} moves {name}"
            np.testing.assert_allclose(now[name], value, rtol=2e-5, atol=2e-5, err_msg=name)
            # so that rounding does not add up
            self.model.values[name] = now[name].copy()
        frozen = {name for name in WEIGHTS if mg.is_frozen(self.net, name)}
        assert frozen == self.model.frozen, action

    def values(self) -> dict[str, np.ndarray]:
        return {str(p.name): p.asnumpy() for p in self.net.get_parameters()}

    def run(self) -> None:
        if not self.model.trainable:
            with pytest.raises(mg.ArgumentError, match="nothing is left to train"):
                self.step(BATCH, FACTORS)
            return
        self.step(BATCH, FACTORS)
        self.model.step()
        assert self.step.trainable == self.model.trainable

    def freeze(self, names: list[str], statistics: bool) -> None:
        made = mg.freeze(self.net, names, statistics=statistics)
        self.changes.append((made, self.model.freeze(set(names), statistics=statistics)))

    def unfreeze(self, names: list[str]) -> None:
        self.changes.append((mg.unfreeze(self.net, names), self.model.unfreeze(set(names))))

    def undo(self, number: int) -> None:
        if number < len(self.changes):
            made, change = self.changes[number]
            made.undo()
            self.model.undo(change)
            self.changes[number] = made, None

    def inside(self, names: list[str]) -> None:
        """Step inside a freeze, which ends with its block."""
        claim = self.model.freeze(set(names), statistics=True)
        with mg.freeze(self.net, names):
            self.run()
        self.model.undo(claim)

    def stop(self, cell: str) -> None:
        if cell not in self.model.wrapped:
            mg.stop_gradient(self.net, cell)
            self.model.wrapped[cell] = None

    def scale(self, cell: str, by: float) -> None:
        if cell not in self.model.wrapped:
            mg.scale_gradient(self.net, cell, scale=by)
            self.model.wrapped[cell] = by

    def unwrap(self, cell: str) -> None:
        if cell in self.model.wrapped:
            mg.unwrap(self.net, cell)
            del self.model.wrapped[cell]

    def hold(self, name: str) -> None:
        if name in self.step.trainable:
            self.step.optimizer.hold(name)
            self.model.held.add(name)
            self.model.held_rows.pop(name, None)

    def hold_row(self, name: str, row: int) -> None:
        if name in self.step.trainable and name not in self.model.held:
            self.step.optimizer.hold_rows(name, [row])
            rows = self.model.held_rows.setdefault(name, set())
            rows.add(row)
            if len(rows) == 3:
                self.hold(name)

    def release(self, name: str) -> None:
        if name in self.step.trainable:
            self.step.optimizer.release(name)
            self.model.held.discard(name)
            self.model.held_rows.pop(name, None)

    def update(self, name: str) -> None:
        mg.update_weights(self.net, {name: halved}, force=True)
        self.model.values[name] = self.model.values[name] * np.float32(0.5)

    def mode(self, graph: bool) -> None:
        ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)

    def save(self) -> None:
        self.step.save(self.folder / "step.ckpt")
        self.saved = {**self.model.saved(), "frozen": self.model.frozen}

    def load(self) -> None:
        """Go back to a save, where the script asks for the freezes that it had."""
        if self.saved is not None and self.saved["frozen"] == self.model.frozen:
            self.step.load(self.folder / "step.ckpt")
            self.model.load({name: self.saved[name] for name in self.model.saved()})

    def copy(self) -> None:
        """Go on with a copy of the network, which keeps its claims, and a new step."""
        if not self.model.trainable:
            return
        self.net = copy.deepcopy(self.net)
        # a handle of the first network undoes nothing in its copy
        self.changes = []
        self.begin()


def drawn(chance: random.Random, most: int = MOST) -> list[Action]:
    """Draw a sequence; half of the calls are steps."""

    def some() -> list[str]:
        return chance.sample(WEIGHTS, chance.randint(1, len(WEIGHTS)))

    kinds: list[Any] = [
        lambda: ("freeze", some(), chance.random() < 0.7),
        lambda: ("unfreeze", some()),
        lambda: ("undo", chance.randrange(8)),
        lambda: ("inside", some()),
        lambda: ("stop", chance.choice(list(CELLS))),
        lambda: ("scale", chance.choice(list(CELLS)), chance.choice([0.5, 0.25])),
        lambda: ("unwrap", chance.choice(list(CELLS))),
        lambda: ("hold", chance.choice(WEIGHTS)),
        lambda: ("hold_row", chance.choice(WEIGHTS), chance.randrange(3)),
        lambda: ("release", chance.choice(WEIGHTS)),
        lambda: ("update", chance.choice(WEIGHTS)),
        lambda: ("mode", chance.random() < 0.5),
        lambda: ("save",),
        lambda: ("load",),
        lambda: ("copy",),
    ]
    return [
        ("run",) if chance.random() < 0.5 else chance.choice(kinds)()
        for _ in range(chance.randint(1, most))
    ]


def assert_no_other_bit_moves(actions: list[Action], *, graph: bool, folder: Path) -> None:
    """Play a sequence from a fresh network; raises AssertionError where the model disagrees."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    played = Play(folder)
    for action in [*actions, ("run",), ("run",)]:
        played.play(action)


def main() -> int:
    """Play many sequences, print those that fail, and how many there were."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=2000, help="sequences (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default 0)")
    given = parser.parse_args()
    failed = []
    for seed in range(given.first, given.first + given.count):
        chance = random.Random(seed)
        actions, graph = drawn(chance), chance.random() < 0.5
        with tempfile.TemporaryDirectory() as folder:
            try:
                assert_no_other_bit_moves(actions, graph=graph, folder=Path(folder))
            except Exception as error:
                failed.append(seed)
                print(f"seed {seed}, graph {graph}: {type(error).__name__}: {error}\n  {actions}")
    print(f"{given.count} sequences, {len(failed)} violations {failed}")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
