"""The table of the contract: every optimizer that a CPU has, and the parts of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim
from mindspore.mint import optim as mint_optim

import msgrad as mg
from tests.nets.step_nets import Trap, batches

Weights = list[Parameter]
Values = dict[str, np.ndarray]


def by_layer(*rates: object) -> Callable[[Weights], list[dict]]:
    """Return a function that makes a group for each layer, the empty ones left out."""

    def groups(weights: Weights) -> list[dict]:
        found = []
        for layer, rate in zip(("head.", "encoder.", "alphabeta."), rates, strict=True):
            members = [p for p in weights if p.name.startswith(layer)]
            if members:
                found.append({"params": members, "lr": rate, "weight_decay": 0.1})
        return found

    return groups


FIXED = by_layer(0.01, 0.02, 0.03)
MIXED = by_layer(0.01, nn.CosineDecayLR(0.001, 0.05, 20), [0.03 / (n + 1) for n in range(40)])
RATES = [0.05 / (n + 1) for n in range(40)]


@dataclass(frozen=True)
class Row:
    """One optimizer, and where it runs on a CPU."""

    make: Callable[[Weights], nn.Cell]
    graph_only: bool = False
    since_2_10: bool = False
    row_state: bool = True  # whether its state has the rows of its weights


# The rows that go through both runs.
COMMON = {
    "sgd": Row(lambda p: nn.SGD(p, 0.05, weight_decay=0.1)),
    "sgd-momentum": Row(lambda p: nn.SGD(p, 0.05, momentum=0.9, dampening=0.1, weight_decay=0.1)),
    "sgd-nesterov": Row(lambda p: nn.SGD(p, 0.05, momentum=0.9, nesterov=True)),
    "momentum": Row(lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=0.1)),
    "nesterov": Row(lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=0.1, use_nesterov=True)),
    "adam": Row(lambda p: nn.Adam(p, 0.02, weight_decay=0.1)),
    "adamw": Row(lambda p: nn.AdamWeightDecay(p, 0.02, weight_decay=0.1)),
    "rmsprop": Row(lambda p: nn.RMSProp(p, 0.02, momentum=0.5, weight_decay=0.1)),
    "rmsprop-centered": Row(lambda p: nn.RMSProp(p, 0.02, centered=True)),
    "adagrad": Row(lambda p: nn.Adagrad(p, learning_rate=0.05, weight_decay=0.1)),
    "asgd": Row(lambda p: nn.ASGD(p, 0.05, t0=3.0, weight_decay=0.1), row_state=False),
    "exp-sgd": Row(lambda p: optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1)),
    "exp-adam": Row(lambda p: optim.Adam(p, 0.02, weight_decay=0.1)),
    "exp-adamw": Row(lambda p: optim.AdamW(p, 0.02, weight_decay=0.1)),
    "exp-nadam": Row(lambda p: optim.NAdam(p, 0.02), row_state=False),
    "mint-sgd": Row(
        lambda p: mint_optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
        graph_only=True,
        since_2_10=True,
    ),
    "adam-grouped": Row(lambda p: nn.Adam(FIXED(p), 0.01)),
    "momentum-grouped-rates": Row(lambda p: nn.Momentum(MIXED(p), 0.01, 0.9)),
    "exp-adamw-grouped": Row(lambda p: optim.AdamW(FIXED(p), 0.01)),
    "adam-rate-list": Row(lambda p: nn.Adam(p, RATES, weight_decay=0.1)),
    "momentum-rate-schedule": Row(lambda p: nn.Momentum(p, nn.CosineDecayLR(0.001, 0.05, 20), 0.9)),
}
# The rest of what a CPU has: through the first run.
OTHERS = {
    "amsgrad": Row(lambda p: nn.Adam(p, 0.02, use_amsgrad=True)),
    "adadelta": Row(lambda p: nn.Adadelta(p, 0.5, weight_decay=0.1)),
    "adafactor": Row(
        lambda p: nn.AdaFactor(p, 0.02, scale_parameter=False, relative_step=False),
        row_state=False,
    ),
    "adamax": Row(lambda p: nn.AdaMax(p, 0.02, weight_decay=0.1)),
    "adamoffload": Row(lambda p: nn.AdamOffload(p, 0.02, weight_decay=0.1)),
    "ftrl": Row(lambda p: nn.FTRL(p, learning_rate=0.05, weight_decay=0.1)),
    "lazyadam": Row(lambda p: nn.LazyAdam(p, 0.02, weight_decay=0.1)),
    "proximal-adagrad": Row(lambda p: nn.ProximalAdagrad(p, learning_rate=0.05)),
    "rprop": Row(lambda p: nn.Rprop(p, 0.02, weight_decay=0.1)),
    "exp-adadelta": Row(lambda p: optim.Adadelta(p, 0.5)),
    "exp-adagrad": Row(lambda p: optim.Adagrad(p, 0.05)),
    "exp-adamax": Row(lambda p: optim.Adamax(p, 0.02)),
    "exp-asgd": Row(lambda p: optim.ASGD(p, 0.05, t0=3.0, weight_decay=0.1), row_state=False),
    "exp-radam": Row(lambda p: optim.RAdam(p, 0.02)),
    "exp-rmsprop": Row(lambda p: optim.RMSprop(p, 0.02, momentum=0.5)),
    "exp-rprop": Row(lambda p: optim.Rprop(p, 0.02)),
    "mint-adam": Row(lambda p: mint_optim.Adam(p, 0.02, weight_decay=0.1), graph_only=True),
}
ROWS = {**COMMON, **OTHERS}

ALL = ("encoder.head.weight", "encoder.head.bias", "alphabeta.weight", "head.weight")
PART = ("encoder.head.weight", "head.weight")
HELD = ("encoder.head.bias", "alphabeta.weight")
HEAD = ("head.weight",)
ROW = [0]


@dataclass(frozen=True)
class Part:
    """Three steps of a run: what is changed before them, what then moves, what is held."""

    change: Callable[[nn.Cell, mg.TrainStep | None], object]
    trains: tuple[str, ...]
    held: dict[str, list[int] | slice] = field(default_factory=dict)

    @property
    def moves(self) -> tuple[str, ...]:
        whole = [name for name, rows in self.held.items() if rows == slice(None)]
        return tuple(name for name in self.trains if name not in whole)


def freeze(net: nn.Cell, _: object) -> None:
    mg.freeze(net, *HELD)


def release(net: nn.Cell, _: object) -> None:
    mg.unfreeze(net)
    mg.unwrap(net)


def stop(net: nn.Cell, _: object) -> None:
    mg.stop_gradient(net, "alphabeta")


def hold(_: nn.Cell, step: mg.TrainStep | None) -> None:
    assert step is not None
    step.optimizer.hold(*HELD)


def hold_rows(_: nn.Cell, step: mg.TrainStep | None) -> None:
    assert step is not None
    step.optimizer.release(*HELD)
    step.optimizer.hold_rows("head.weight", ROW)


# Each column of the table is one part of one of the runs, which go through their parts in order.
FREEZING = {
    "freeze-before": Part(freeze, PART),
    "unfreeze-after-3-steps": Part(release, ALL),
    "freeze-after-6-steps": Part(freeze, PART),
    "unfreeze-again": Part(release, ALL),
    "stop-added-with-live-momentum": Part(stop, HEAD),
}
HOLDING = {
    "stop-before": Part(stop, HEAD),
    "stop-gone": Part(release, ALL),
    "hold": Part(hold, ALL, {name: slice(None) for name in HELD}),
    "hold-rows": Part(hold_rows, ALL, {"head.weight": ROW}),
    "stop-while-rows-are-held": Part(stop, HEAD, {"head.weight": ROW}),
}
RUNS = {"freezing": FREEZING, "holding": HOLDING}


@dataclass(frozen=True)
class Result:
    """What one part began with and left, weights and optimizer state."""

    before: Values
    after: Values
    state_before: Values
    state_after: Values

    def moved(self) -> tuple[str, ...]:
        return tuple(n for n, v in self.after.items() if v.tobytes() != self.before[n].tobytes())


@dataclass(frozen=True)
class Run:
    """The results of a run by the names of their columns, and the graphs that it compiled."""

    parts: dict[str, Result]
    compilations: int = 0


def values_of(parameters: Iterable[Parameter]) -> Values:
    return {p.name: p.asnumpy().copy() for p in parameters}


def state_of(optimizer: nn.Cell) -> list[Parameter]:
    """List all that an optimizer keeps, also in plain lists, where `get_parameters` is blind."""
    inner = optimizer.optimizer if isinstance(optimizer, mg.HoldOptimizer) else optimizer
    weights = {id(p) for p in inner.parameters}
    found = {id(p): p for p in inner.get_parameters()}
    for value in vars(inner).values():
        if isinstance(value, list):
            found.update({id(p): p for p in value if isinstance(p, Parameter)})
    return [p for key, p in found.items() if key not in weights and "learning_rate" not in p.name]


def owner(name: str) -> str | None:
    """Return the weight whose name ends that of a state; `head.weight` ends two of them."""
    return max((weight for weight in ALL if name.endswith(weight)), key=len, default=None)


def run_by_hand(row: Row, parts: dict[str, Part]) -> Run:
    """Do the run with plain MindSpore, its state carried and what is held put back by hand."""
    net, kept, cells, results = Trap(), {}, {}, {}
    for column, part in parts.items():
        if part.trains not in cells:
            optimizer = row.make([p for p in net.get_parameters() if p.name in part.trains])
            cells[part.trains] = optimizer, nn.TrainOneStepCell(net, optimizer).set_train()
        optimizer, cell = cells[part.trains]
        state = state_of(optimizer)
        for parameter in state:
            if parameter.name in kept:
                ops.assign(parameter, Tensor(kept[parameter.name]))
        before, state_before = values_of(net.get_parameters()), values_of(state)
        for batch in batches():
            values = values_of([*net.get_parameters(), *state])
            cell(*batch)
            for parameter in [*net.get_parameters(), *state]:
                put_back(parameter, values[parameter.name], part)
        kept.update(values_of(state))
        after = values_of(net.get_parameters())
        results[column] = Result(before, after, state_before, values_of(state))
    return Run(results)


def put_back(parameter: Parameter, before: np.ndarray, part: Part) -> None:
    rows = part.held.get(owner(parameter.name) or "")
    if rows is not None:
        value = parameter.asnumpy().copy()
        value[rows if value.ndim else ...] = before[rows if value.ndim else ...]
        ops.assign(parameter, Tensor(value))


def run_the_step(row: Row, parts: dict[str, Part]) -> Run:
    """Do the run with a TrainStep; where the run holds, its optimizers can."""
    net, step, results = Trap(), None, {}
    holds = any(part.held for part in parts.values())
    make = (lambda p: mg.HoldOptimizer(row.make(p))) if holds else row.make
    for column, part in parts.items():
        part.change(net, step)
        step = step or mg.TrainStep(net, make).set_train()
        # a stage is entered when it is asked for, except where a new stop asks for a first batch
        known = tuple(step.trainable) == part.trains
        state = values_of(state_of(step.optimizer)) if known else {}
        before = values_of(net.get_parameters())
        for batch in batches():
            step(*batch)
        assert tuple(step.trainable) == part.trains
        after = values_of(net.get_parameters())
        results[column] = Result(before, after, state, values_of(state_of(step.optimizer)))
    assert step is not None
    return Run(results, step.compilations)


_runs: dict[tuple[str, ...], Run] = {}


def found(name: str, run: str, mode: str) -> Run:
    """A run has several columns and takes seconds: it is done for the first of them."""
    row = ROWS[name]
    if row.graph_only and mode == "pynative":
        pytest.skip("this optimizer moves nothing on a CPU in PYNATIVE_MODE")
    if row.since_2_10 and tuple(map(int, ms.__version__.split(".")[:2])) < (2, 10):
        pytest.skip("this optimizer moves nothing on a CPU before MindSpore 2.10")
    key = (mode, name, run)
    if key not in _runs:
        _runs[key] = run_the_step(row, parts_of(row, run))
    return _runs[key]


def by_hand(name: str, run: str) -> Run:
    row, key = ROWS[name], ("by hand", name, run)
    if key not in _runs:
        mode = ms.get_context("mode")
        ms.set_context(mode=ms.GRAPH_MODE if row.graph_only else ms.PYNATIVE_MODE)
        try:
            _runs[key] = run_by_hand(row, parts_of(row, run))
        finally:
            ms.set_context(mode=mode)
    return _runs[key]


def parts_of(row: Row, run: str) -> dict[str, Part]:
    return {column: p for column, p in RUNS[run].items() if row.row_state or "rows" not in column}


def cases(run: str) -> list[tuple[str, str, str]]:
    """List the cells of the table that belong to a run: optimizer, run, column."""
    rows = COMMON if run == "holding" else ROWS
    return [(name, run, column) for name, row in rows.items() for column in parts_of(row, run)]
