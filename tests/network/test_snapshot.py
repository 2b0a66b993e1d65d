"""Snapshots hold real copies, and a movement is counted in bits."""

from __future__ import annotations

import json
import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.network import Movement, MovementRow, compare_arrays


def two_layers() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2))


def row(before: object, after: object, dtype: str = "float32") -> MovementRow:
    return compare_arrays("w", np.array(before, dtype), np.array(after, dtype))


@pytest.mark.usefixtures("mode")
def test_a_weight_that_training_changed_is_named_with_the_size_of_the_change():
    net = nn.SequentialCell(nn.Dense(3, 2, "ones", "zeros"), nn.Dense(2, 1, "ones", "zeros"))
    step = nn.TrainOneStepCell(net, nn.SGD([net[1].weight], 0.5)).set_train()
    before = mg.Snapshot(net)
    step(Tensor([[1.0, 0.0, 1.0]], ms.float32))
    assert before.moved() == ["1.weight"]
    # the gradient of the last weight is its input, 2 and 2: 0.5 · 2 = 1 each
    moved = before.compare().rows[2]
    assert (moved.max_change, moved.bits_changed) == (1.0, 2)
    assert moved.l2 == pytest.approx(math.sqrt(2.0), rel=1e-12)


def test_the_copies_do_not_share_memory_with_the_weights():
    net = two_layers()
    before = mg.Snapshot(net)
    net[0].weight.asnumpy()[0, 0] += 1.0
    assert before.moved() == ["0.weight"]


def test_without_a_pattern_the_statistics_are_taken_too():
    net = two_layers()
    before = mg.Snapshot(net)
    ops.assign(net[1].moving_mean, Tensor(np.ones(4, np.float32)))
    assert [r.name for r in before.compare().rows] == [p.name for p in net.get_parameters()]
    assert before.moved() == ["1.moving_mean"]


def test_patterns_narrow_what_is_copied_and_keep_the_order_of_the_network():
    net = two_layers()
    before = mg.Snapshot(net, "2", "0.bias")
    ops.assign(net[0].weight, net[0].weight + 1.0)
    movement = before.compare()
    assert [r.name for r in movement.rows] == ["0.bias", "2.weight", "2.bias"]
    assert movement.equal


def test_a_snapshot_can_be_compared_again_after_the_weight_came_back():
    net = two_layers()
    before = mg.Snapshot(net)
    old = Tensor(net[0].bias.asnumpy().copy())
    ops.assign(net[0].bias, old + 1.0)
    assert before.moved() == ["0.bias"]
    ops.assign(net[0].bias, old)
    assert before.moved() == []


@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        pytest.param(ms.float16, 0.25, id="float16"),
        pytest.param(ms.bfloat16, 0.25, id="bfloat16"),
        pytest.param(ms.float64, 2.0**-40, id="float64"),
        pytest.param(ms.int8, 1.0, id="int8"),
        pytest.param(ms.int64, 1.0, id="int64"),
        pytest.param(ms.bool_, 1.0, id="bool"),
    ],
)
def test_every_dtype_is_compared(dtype: ms.Type, change: float):
    holder = nn.Cell()
    holder.w = Parameter(Tensor([1, 0, 1], dtype), requires_grad=False)
    before = mg.Snapshot(holder)
    assert before.compare().equal
    # Assign has no bfloat16 kernel on the CPU
    holder.w.set_data(Tensor([1, change, 1], dtype))
    assert before.compare().rows == (MovementRow("w", (3,), change, change, 1),)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=["0-d", "empty", "empty-3-d"])
def test_a_weight_without_axes_or_without_elements_is_compared(shape: tuple[int, ...]):
    ones = np.ones(shape, np.float32)
    assert compare_arrays("w", ones, ones.copy()) == MovementRow("w", shape, 0.0, 0.0, 0)
    assert compare_arrays("w", ones, -ones.copy()).bits_changed == ones.size


def test_the_sign_of_a_zero_is_a_change_of_size_zero():
    assert row([0.0, 1.0], [-0.0, 1.0]) == MovementRow("w", (2,), 0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("before", "after", "size", "count"),
    [
        pytest.param([math.nan, 1], [math.nan, 1], 0.0, 0, id="same-nan"),
        pytest.param([math.inf, 1], [math.inf, 3], 2.0, 1, id="same-infinity"),
        pytest.param([1, 1], [math.nan, 3], math.nan, 2, id="nan-came"),
        pytest.param([math.nan, 1], [1, 1], math.nan, 1, id="nan-went"),
        pytest.param([1, 1], [math.inf, 3], math.inf, 2, id="infinity-came"),
        pytest.param([math.inf], [-math.inf], math.inf, 1, id="infinity-turned"),
        pytest.param([math.inf], [math.nan], math.nan, 1, id="infinity-to-nan"),
    ],
)
def test_what_is_not_finite_is_said_and_not_hidden(
    before: list[float], after: list[float], size: float, count: int
):
    result = row(before, after)
    np.testing.assert_equal(
        (result.max_change, result.l2, result.bits_changed), (size, size, count)
    )


def test_another_nan_is_a_change():
    quiet, marked = np.array([0x7FC00000], "u4"), np.array([0x7FC00001], "u4")
    result = compare_arrays("w", quiet.view("f4"), marked.view("f4"))
    assert (result.bits_changed, math.isnan(result.max_change)) == (1, True)


@pytest.mark.parametrize(
    ("dtype", "before", "after", "size"),
    [
        pytest.param("int64", 2**53, 2**53 + 1, 1.0, id="beyond-float64"),
        pytest.param("int8", -128, 127, 255.0, id="int8-ends"),
        pytest.param("int64", -(2**63), 2**63 - 1, 2.0**64, id="int64-ends"),
        pytest.param("uint8", 255, 0, 255.0, id="uint8-down"),
        pytest.param("float32", -3e38, 3e38, 6e38, id="float32-ends"),
        pytest.param("float64", 0.0, 1e200, 1e200, id="square-overflows"),
        pytest.param("float64", 0.0, 5e-324, 5e-324, id="square-vanishes"),
        pytest.param("complex128", 0, 3 + 4j, 5.0, id="complex"),
    ],
)
def test_the_size_of_a_change_is_right_at_the_ends_of_the_dtype(
    dtype: str, before: object, after: object, size: float
):
    result = row([before], [after], dtype)
    assert (result.max_change, result.l2) == pytest.approx((size, size), rel=1e-6)
    assert result.bits_changed == 1


def test_a_replaced_weight_is_refused():
    net = two_layers()
    before = mg.Snapshot(net)
    net[0].bias = Parameter(Tensor(np.zeros(4, np.float32)), name="0.bias")
    with pytest.raises(
        mg.ConflictError, match=r"'0\.bias' .* another Parameter object; take a new"
    ):
        before.moved()


def test_removed_weights_are_refused_with_their_number():
    net = two_layers()
    before = mg.Snapshot(net)
    del net[2]
    with pytest.raises(
        mg.ConflictError, match=r"'2\.weight' \(and 1 more\) .* no longer in the network; take"
    ):
        before.compare()


def test_a_weight_of_another_dtype_is_refused_with_both():
    net = two_layers()
    before = mg.Snapshot(net)
    net[0].bias.set_dtype(ms.float16)
    with pytest.raises(
        mg.ShapeError, match=r"'0\.bias'[^\n]*\nbefore: float32 \(4,\)\nafter:  float16"
    ):
        before.compare()


def test_the_table_fits_a_terminal_whatever_the_names():
    long = "encoder." + "block." * 30 + "weight"
    rows = (
        MovementRow(long, (1024, 1024, 3, 3), 1.25e-05, 0.5, 9437184),
        MovementRow("b", (), 0, 0, 0),
    )
    text = str(Movement(rows))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" in text
    assert "block.weight  (1024, 1024, 3, 3)  1.25e-05    0.5  9437184 of 9437184" in text
    assert text.splitlines()[-2].endswith("bits equal")
    assert text.splitlines()[-1] == "1 of 2 weights moved"


def test_json_holds_the_rows_and_is_valid_where_a_change_is_not_finite(tmp_path):
    movement = Movement((row([1.0, 1.0], [math.nan, 2.0]), row([1.0], [1.0])))
    text = movement.to_json(tmp_path / "new" / "movement.json")
    assert (tmp_path / "new" / "movement.json").read_text() == text + "\n"
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["equal"] is False
    assert found["rows"][0] == {
        "name": "w", "shape": [2], "max_change": "nan", "l2": "nan", "bits_changed": 2,
    }  # fmt: skip
    assert found["rows"][1]["max_change"] == 0.0
