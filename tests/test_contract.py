"""The contract of TrainStep: every optimizer that a CPU has, through freezing and stops.

The oracle is plain MindSpore: an optimizer over the list that is to move, its state copied by name
from the one before. It runs in PYNATIVE_MODE, where nothing is compiled, except where an optimizer
moves nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim
from mindspore.mint import optim as mint_optim

import msgrad as mg
from msgrad import _trainable
from tests.step_nets import Trap, batches

pytestmark = pytest.mark.usefixtures("mode", "_reach_once")

Weights = list[Parameter]
Values = dict[str, np.ndarray]
SINCE_2_10 = tuple(map(int, ms.__version__.split(".")[:2])) >= (2, 10)


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


ROWS = {
    "sgd": Row(lambda p: nn.SGD(p, 0.05, weight_decay=0.1)),
    "sgd-momentum": Row(lambda p: nn.SGD(p, 0.05, momentum=0.9, dampening=0.1, weight_decay=0.1)),
    "sgd-nesterov": Row(lambda p: nn.SGD(p, 0.05, momentum=0.9, nesterov=True)),
    "momentum": Row(lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=0.1)),
    "nesterov": Row(lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=0.1, use_nesterov=True)),
    "adam": Row(lambda p: nn.Adam(p, 0.02, weight_decay=0.1)),
    "amsgrad": Row(lambda p: nn.Adam(p, 0.02, use_amsgrad=True)),
    "adamw": Row(lambda p: nn.AdamWeightDecay(p, 0.02, weight_decay=0.1)),
    "rmsprop": Row(lambda p: nn.RMSProp(p, 0.02, momentum=0.5, weight_decay=0.1)),
    "rmsprop-centered": Row(lambda p: nn.RMSProp(p, 0.02, centered=True)),
    "adagrad": Row(lambda p: nn.Adagrad(p, learning_rate=0.05, weight_decay=0.1)),
    "adadelta": Row(lambda p: nn.Adadelta(p, 0.5, weight_decay=0.1)),
    "adafactor": Row(lambda p: nn.AdaFactor(p, 0.02, scale_parameter=False, relative_step=False)),
    "adamax": Row(lambda p: nn.AdaMax(p, 0.02, weight_decay=0.1)),
    "adamoffload": Row(lambda p: nn.AdamOffload(p, 0.02, weight_decay=0.1)),
    "asgd": Row(lambda p: nn.ASGD(p, 0.05, t0=3.0, weight_decay=0.1)),
    "ftrl": Row(lambda p: nn.FTRL(p, learning_rate=0.05, weight_decay=0.1)),
    "lazyadam": Row(lambda p: nn.LazyAdam(p, 0.02, weight_decay=0.1)),
    "proximal-adagrad": Row(lambda p: nn.ProximalAdagrad(p, learning_rate=0.05)),
    "rprop": Row(lambda p: nn.Rprop(p, 0.02, weight_decay=0.1)),
    "exp-sgd": Row(lambda p: optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1)),
    "exp-adam": Row(lambda p: optim.Adam(p, 0.02, weight_decay=0.1)),
    "exp-adamw": Row(lambda p: optim.AdamW(p, 0.02, weight_decay=0.1)),
    "exp-adadelta": Row(lambda p: optim.Adadelta(p, 0.5)),
    "exp-adagrad": Row(lambda p: optim.Adagrad(p, 0.05)),
    "exp-adamax": Row(lambda p: optim.Adamax(p, 0.02)),
    "exp-asgd": Row(lambda p: optim.ASGD(p, 0.05, t0=3.0, weight_decay=0.1)),
    "exp-nadam": Row(lambda p: optim.NAdam(p, 0.02)),
    "exp-radam": Row(lambda p: optim.RAdam(p, 0.02)),
    "exp-rmsprop": Row(lambda p: optim.RMSprop(p, 0.02, momentum=0.5)),
    "exp-rprop": Row(lambda p: optim.Rprop(p, 0.02)),
    "mint-sgd": Row(
        lambda p: mint_optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
        graph_only=True,
        since_2_10=True,
    ),
    "mint-adam": Row(lambda p: mint_optim.Adam(p, 0.02, weight_decay=0.1), graph_only=True),
    "adam-grouped": Row(lambda p: nn.Adam(FIXED(p), 0.01)),
    "momentum-grouped-rates": Row(lambda p: nn.Momentum(MIXED(p), 0.01, 0.9)),
    "exp-adamw-grouped": Row(lambda p: optim.AdamW(FIXED(p), 0.01)),
    "adam-rate-list": Row(lambda p: nn.Adam(p, RATES, weight_decay=0.1)),
    "momentum-rate-schedule": Row(lambda p: nn.Momentum(p, nn.CosineDecayLR(0.001, 0.05, 20), 0.9)),
}

ALL = ("encoder.head.weight", "encoder.head.bias", "alphabeta.weight", "head.weight")
PART = ("encoder.head.weight", "head.weight")
HEAD = ("head.weight",)


def freeze(net: nn.Cell) -> None:
    mg.freeze(net, "alphabeta", "encoder.head.bias")


def release(net: nn.Cell) -> None:
    mg.unfreeze(net)
    mg.unwrap(net)


def stop(net: nn.Cell) -> None:
    mg.stop_gradient(net, "alphabeta")


# A run is a few parts of three steps each; a column of the table is one part of a run.
RUNS = {
    "freeze": [
        ("freeze-before", freeze, PART),
        ("unfreeze-after-3-steps", release, ALL),
        ("freeze-after-6-steps", freeze, PART),
        ("unfreeze-again", release, ALL),
        ("stop-added-with-live-momentum", stop, HEAD),
        ("stop-taken-away", release, ALL),
    ],
    "stop": [("stop-before", stop, HEAD)],
}
COLUMNS = [
    pytest.param(run, column, moves, id=column)
    for run, parts in RUNS.items()
    for column, _, moves in parts
]


@dataclass(frozen=True)
class Part:
    """What one part of a run began with and left, weights and optimizer state."""

    before: Values
    after: Values
    state_before: Values
    state_after: Values

    def moved(self) -> tuple[str, ...]:
        return tuple(n for n, v in self.after.items() if v.tobytes() != self.before[n].tobytes())


@dataclass(frozen=True)
class Run:
    """The parts of a run by the names of their columns, and the graphs that it compiled."""

    parts: dict[str, Part]
    compilations: int


def values_of(parameters: Iterable[Parameter]) -> Values:
    return {p.name: p.asnumpy().copy() for p in parameters}


def state_of(optimizer: nn.Cell) -> Values:
    """Copy all that an optimizer keeps, also in plain lists, where `get_parameters` is blind."""
    return values_of(own_state(optimizer))


def own_state(optimizer: nn.Cell) -> list[Parameter]:
    weights = {id(p) for p in optimizer.parameters}
    found = {id(p): p for p in optimizer.get_parameters()}
    for value in vars(optimizer).values():
        if isinstance(value, list):
            found.update({id(p): p for p in value if isinstance(p, Parameter)})
    return [p for key, p in found.items() if key not in weights and "learning_rate" not in p.name]


def run_by_hand(row: Row, name: str) -> Run:
    net, kept, cells, parts = Trap(), {}, {}, {}
    for column, _, moves in RUNS[name]:
        if moves not in cells:
            optimizer = row.make([p for p in net.get_parameters() if p.name in moves])
            cells[moves] = optimizer, nn.TrainOneStepCell(net, optimizer).set_train()
        optimizer, cell = cells[moves]
        for parameter in own_state(optimizer):
            if parameter.name in kept:
                ops.assign(parameter, Tensor(kept[parameter.name]))
        before, state = values_of(net.get_parameters()), state_of(optimizer)
        for batch in batches():
            cell(*batch)
        kept.update(state_of(optimizer))
        parts[column] = Part(before, values_of(net.get_parameters()), state, state_of(optimizer))
    return Run(parts, 0)


def run_the_step(row: Row, name: str) -> Run:
    net, step, parts = Trap(), None, {}
    for column, change, moves in RUNS[name]:
        change(net)
        step = step or mg.TrainStep(net, row.make).set_train()
        # a stage is entered when it is asked for, except where a new stop asks for a first batch
        state = state_of(step.optimizer) if tuple(step.trainable) == moves else {}
        before = values_of(net.get_parameters())
        for batch in batches():
            step(*batch)
        assert tuple(step.trainable) == moves
        after = values_of(net.get_parameters())
        parts[column] = Part(before, after, state, state_of(step.optimizer))
    assert step is not None
    return Run(parts, step.compilations)


_runs: dict[tuple[str, ...], Run] = {}
_reaches: dict[tuple[str, ...], object] = {}


def found(name: str, run: str, mode: str) -> Run:
    """A run has several columns and takes seconds: it is done for the first of them."""
    row = ROWS[name]
    if row.graph_only and mode == "pynative":
        pytest.skip("this optimizer moves nothing on a CPU in PYNATIVE_MODE")
    if row.since_2_10 and not SINCE_2_10:
        pytest.skip("this optimizer moves nothing on a CPU before MindSpore 2.10")
    key = (mode, name, run)
    if key not in _runs:
        _runs[key] = run_the_step(row, run)
    return _runs[key]


def by_hand(name: str, run: str) -> Run:
    key = ("by hand", name, run)
    if key not in _runs:
        mode = ms.get_context("mode")
        ms.set_context(mode=ms.GRAPH_MODE if ROWS[name].graph_only else ms.PYNATIVE_MODE)
        try:
            _runs[key] = run_by_hand(ROWS[name], run)
        finally:
            ms.set_context(mode=mode)
    return _runs[key]


@pytest.fixture
def _reach_once(monkeypatch: pytest.MonkeyPatch):
    """The reach has tests of its own and is the same for all rows: found once for each stop."""
    find = _trainable.find_reach

    def find_once(network, inputs):
        key = tuple(path for path, _ in mg.wrapped(network))
        if key not in _reaches:
            _reaches[key] = find(network, inputs)
        return _reaches[key]

    monkeypatch.setattr(_trainable, "find_reach", find_once)


def assert_close(values: Values, expected: Values) -> None:
    """Equal but for a few units in the last place: the modes and the launches round differently."""
    assert values.keys() == expected.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("run", "column", "moves"), COLUMNS)
@pytest.mark.parametrize("name", list(ROWS))
def test_what_is_held_stays_and_the_rest_moves_as_in_plain_mindspore(
    name: str, run: str, column: str, moves: tuple[str, ...], mode: str
):
    part = found(name, run, mode).parts[column]
    expected = by_hand(name, run).parts[column]
    assert expected.moved() == moves
    assert part.moved() == moves
    assert_close(part.after, expected.after)
    assert_close(part.state_after, expected.state_after)


@pytest.mark.parametrize("name", list(ROWS))
def test_a_frozen_weight_has_no_state_and_a_released_one_goes_on_with_the_bits_of_its_own(
    name: str, mode: str
):
    parts = found(name, "freeze", mode).parts
    left = state_of_held(parts["unfreeze-after-3-steps"].state_after)
    assert left
    assert not state_of_held(parts["freeze-after-6-steps"].state_after)
    back = state_of_held(parts["unfreeze-again"].state_before)
    assert {n: v.tobytes() for n, v in back.items()} == {n: v.tobytes() for n, v in left.items()}


def state_of_held(state: Values) -> Values:
    return {n: v for n, v in state.items() if n.endswith(("alphabeta.weight", "encoder.head.bias"))}


@pytest.mark.parametrize("name", list(ROWS))
def test_a_run_through_three_stages_compiles_three_graphs(name: str, mode: str):
    assert found(name, "freeze", mode).compilations == (3 if mode == "graph" else 0)
