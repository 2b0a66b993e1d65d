"""What can be held: patterns, rows, and the refusals."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from msgrad.optim._hold import Masks
from tests.optim.hold_training import network


@pytest.fixture(scope="module")
def optimizer() -> mg.HoldOptimizer:
    weights = [*network().get_parameters(), Parameter(Tensor(1.0), name="scale")]
    return mg.HoldOptimizer(nn.SGD(weights, 0.1))


@pytest.mark.parametrize(
    ("rows", "held"),
    [
        pytest.param(2, [2], id="number"),
        pytest.param(-1, [3], id="from-the-end"),
        pytest.param(slice(1, 3), [1, 2], id="slice"),
        pytest.param([3, 0, 3], [0, 3], id="list"),
        pytest.param(np.array([False, True, False, True]), [1, 3], id="booleans"),
        pytest.param(Tensor([1, 2]), [1, 2], id="tensor"),
    ],
)
def test_rows_are_given_as_numpy_takes_them(optimizer, rows, held):
    assert optimizer.hold_rows("0.weight", rows) == held
    assert optimizer.held_rows == {"0.weight": held}
    assert optimizer.release_rows("0.weight", held[:1]) == held[1:]
    assert optimizer.release_rows("0.weight") == []


def test_a_weight_whose_rows_are_all_held_is_held(optimizer):
    optimizer.hold_rows("0.weight", [0, 1])
    optimizer.hold_rows("0.weight", [2, 3])
    assert (optimizer.held, optimizer.held_rows) == (["0.weight"], {})
    assert optimizer.release("*") == ["0.weight", "0.bias", "2.weight", "2.bias", "scale"]
    assert (optimizer.held, optimizer.held_rows) == ([], {})


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        pytest.param(
            "0.weight", 4, r"rows 4 do not fit the 4 rows of '0\.weight'; .*-4 to 3", id="4"
        ),
        pytest.param("0.weight", 1.5, r"rows 1\.5 do not fit the 4 rows", id="float"),
        pytest.param("0.weight", [True], r"rows \[True\] do not fit .* or 4 booleans", id="bools"),
        pytest.param("0.weight", [], r"rows \[\] are none of the 4 rows", id="none"),
        pytest.param("0", 1, r"name '0' is that of 2 weights; give that of one", id="two"),
        pytest.param("scale", 0, r"'scale' is a number without rows; hold it whole", id="0-d"),
    ],
)
def test_rows_that_do_not_exist_are_refused(optimizer, name, rows, message):
    with pytest.raises(mg.ArgumentError, match=message):
        optimizer.hold_rows(name, rows)
    assert (optimizer.held, optimizer.held_rows) == ([], {})


def test_rows_are_refused_where_the_state_has_other_shapes():
    weight = Parameter(Tensor(np.ones((4, 3), np.float32)), name="w")
    factor = Parameter(Tensor(np.ones(4, np.float32)), name="row_factor.w")
    masks = Masks([("w", weight), ("w", factor)])
    with pytest.raises(mg.ArgumentError, match=r"'w' \(4, 3\) .* shape \(4,\), .* hold it whole"):
        masks.set_rows("w", 1, held=True)
    masks.set("w", held=True)
    assert [(m.name, m.asnumpy().all()) for m in masks.parameters] == [
        ("hold_mask.w", True), ("hold_mask.row_factor.w", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "error", "message"),
    [
        pytest.param((), mg.ArgumentError, "patterns .* empty", id="no-pattern"),
        pytest.param(("0.wieght",), mg.NoMatchError, r"did you mean '0\.weight'", id="misspelt"),
        pytest.param((3,), mg.ArgumentTypeError, "pattern 3 is no name; give strings", id="type"),
        pytest.param(
            (Parameter(Tensor(1.0), name="b"),), mg.ArgumentError, "'b' is no parameter", id="other"
        ),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(optimizer, patterns, error, message):
    with pytest.raises(error, match=message):
        optimizer.hold(*patterns)
    assert optimizer.held == []


def test_parameters_and_selections_are_patterns():
    net = network()
    optimizer = mg.HoldOptimizer(nn.SGD(net.trainable_params(), 0.1))
    assert optimizer.hold(net[2].bias, mg.select(net, "0")) == ["0.weight", "0.bias", "2.bias"]


def test_what_is_no_optimizer_or_holds_already_is_refused(optimizer):
    with pytest.raises(mg.ArgumentTypeError, match=r"optimizer type is no optimizer; give one"):
        mg.HoldOptimizer(nn.SGD)
    with pytest.raises(mg.ArgumentError, match="can hold already; use its hold and release"):
        mg.HoldOptimizer(optimizer)
