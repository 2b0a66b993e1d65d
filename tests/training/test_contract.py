"""The contract of TrainStep: every optimizer that a CPU has, through freezing, stops and holds.

The oracle is plain MindSpore: an optimizer over the list that is to move, its state copied by name
from the one before. It runs in PYNATIVE_MODE, where nothing is compiled, except where an optimizer
moves nothing there.
"""

from __future__ import annotations

import numpy as np
import pytest

import msgrad as mg
from msgrad.training import _trainable
from tests.training.contract import COMMON, HELD, ROWS, RUNS, Values, by_hand, cases, found, owner

pytestmark = pytest.mark.usefixtures("mode", "_reach_once")

CASES = [
    pytest.param(name, run, column, id=f"{name}-{column}")
    for run in RUNS
    for name, _, column in cases(run)
]
HOLDS = [case for case in CASES if RUNS[str(case.values[1])][str(case.values[2])].held]
_reaches: dict[tuple[str, ...], object] = {}


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


def bits(values: Values) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in values.items()}


@pytest.mark.parametrize(("name", "run", "column"), CASES)
def test_what_is_held_stays_and_the_rest_moves_as_in_plain_mindspore(
    name: str, run: str, column: str, mode: str
):
    result = found(name, run, mode).parts[column]
    expected = by_hand(name, run).parts[column]
    assert expected.moved() == RUNS[run][column].moves
    assert result.moved() == RUNS[run][column].moves
    assert_close(result.after, expected.after)
    assert_close(result.state_after, expected.state_after)


@pytest.mark.parametrize(("name", "run", "column"), HOLDS)
def test_what_is_held_at_run_time_keeps_the_bits_of_its_state(
    name: str, run: str, column: str, mode: str
):
    result, held = found(name, run, mode).parts[column], RUNS[run][column].held
    before, after = {**result.before, **result.state_before}, {**result.after, **result.state_after}
    still = {n: held[o] for n in before if (o := owner(n)) in held and o is not None}
    assert len(still) > len(held)
    for state, rows in still.items():
        part = rows if before[state].ndim else ...
        assert before[state][part].tobytes() == after[state][part].tobytes(), state


@pytest.mark.parametrize("name", list(ROWS))
def test_a_frozen_weight_has_no_state_and_a_released_one_goes_on_with_the_bits_of_its_own(
    name: str, mode: str
):
    parts = found(name, "freezing", mode).parts
    left = of_held(parts["unfreeze-after-3-steps"].state_after)
    assert left
    assert not of_held(parts["freeze-after-6-steps"].state_after)
    assert bits(of_held(parts["unfreeze-again"].state_before)) == bits(left)


def of_held(state: Values) -> Values:
    return {name: value for name, value in state.items() if owner(name) in HELD}


@pytest.mark.parametrize(
    ("name", "run", "stages"),
    [
        *[pytest.param(name, "freezing", 3, id=f"{name}-freezing") for name in ROWS],
        *[pytest.param(name, "holding", 2, id=f"{name}-holding") for name in COMMON],
    ],
)
def test_a_stage_is_compiled_once_and_a_hold_compiles_nothing(
    name: str, run: str, stages: int, mode: str
):
    assert found(name, run, mode).compilations == (stages if mode == "graph" else 0)
