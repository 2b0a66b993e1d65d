"""Counts of what may move, against sums done by hand and by NumPy."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from msgrad.network._summary import CellSummary
from tests.nets.select_nets import Branchy, Layered, branchy_wrapped, gained
from tests.nets.shared import Tied

pytestmark = pytest.mark.usefixtures("mode")


class Own(nn.Cell):
    """A parameter of its own beside a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Parameter(Tensor(np.ones((2, 3)), ms.float16), name="scale")
        self.fc = nn.Dense(2, 3)


class Sized(nn.Cell):
    """One parameter of a given size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = Parameter(Tensor(np.zeros(size, np.float32)), name="w")


def mlp() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))


def flags_off(*parameters: Parameter) -> None:
    for parameter in parameters:
        parameter.requires_grad = False


def test_each_cell_at_the_top_has_a_row_counted_by_its_flags():
    net = mlp()
    flags_off(net[0].weight)
    summary = mg.summary(net)
    assert summary.rows == (CellSummary("0", 8, 40, 32, 160), CellSummary("2", 18, 18, 72, 72))
    assert (summary.trainable, summary.untrainable, summary.total) == (26, 32, 58)
    assert (summary.trainable_bytes, summary.untrainable_bytes) == (104, 128)
    assert summary.total_bytes == 232


def test_a_summary_prints_the_share_and_one_aligned_row_per_cell():
    net = mlp()
    flags_off(net[0].weight, net[0].bias)
    assert str(mg.summary(net)) == (
        "trainable 18 of 58 (31.0 %)\n"
        "  0   0 of 40    0.0 %   0 B of 160 B\n"
        "  2  18 of 18  100.0 %  72 B of  72 B"
    )


def test_bytes_follow_the_dtype_and_what_the_network_owns_has_a_row_of_its_own():
    assert mg.summary(Own()).rows == (
        CellSummary("", 6, 6, 12, 12),
        CellSummary("fc", 9, 9, 36, 36),
    )
    assert "(itself)  6 of 6" in str(mg.summary(Own()))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(Branchy, id="containers-and-statistics"),
        pytest.param(branchy_wrapped, id="wrapped"),
        pytest.param(gained, id="wrappers-with-parameters"),
        pytest.param(Tied, id="tied"),
    ],
)
def test_totals_are_those_of_what_mindspore_lists(make):
    net = make()
    everything = {id(p): p for p in net.get_parameters()}.values()
    moving = {id(p): p for p in net.trainable_params()}.values()
    summary = mg.summary(net)
    assert summary.total == sum(np.prod(p.shape, dtype=int) for p in everything)
    assert summary.trainable == sum(np.prod(p.shape, dtype=int) for p in moving)
    assert summary.total_bytes == sum(p.asnumpy().nbytes for p in everything)
    assert summary.trainable_bytes == sum(p.asnumpy().nbytes for p in moving)


def test_norm_statistics_count_as_weights_that_may_not_move():
    assert mg.summary(nn.SequentialCell(nn.BatchNorm1d(5))).rows == (
        CellSummary("0", 10, 20, 40, 80),
    )


def test_a_tied_weight_is_counted_once_where_it_stands_first():
    rows = {row.cell: row.total for row in mg.summary(Tied()).rows}
    assert rows == {"embedding": 24, "middle": 20, "output": 6}


@pytest.mark.parametrize(
    ("size", "text"),
    [
        pytest.param(999, "999 of 999", id="below-a-thousand"),
        pytest.param(1_000, "1.0 k of 1.0 k", id="a-thousand"),
        pytest.param(64_940, "64.9 k of 64.9 k", id="thousands"),
        pytest.param(999_949, "999.9 k of 999.9 k", id="just-below-a-million"),
        pytest.param(999_950, "1.0 M of 1.0 M", id="rounded-up-to-a-million"),
        pytest.param(2_560_000, "2.6 M of 2.6 M", id="millions"),
    ],
)
def test_large_numbers_are_short(size, text):
    assert str(mg.summary(Sized(size))).startswith(f"trainable {text} (100.0 %)")


def test_a_network_without_parameters_is_zero_of_zero():
    assert str(mg.summary(nn.ReLU())) == "trainable 0 of 0 (0.0 %)"


# --- G4: what the optimizer really holds


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9)


def test_g4_a_train_cell_is_summed_up_by_its_optimizer_and_not_by_flags():
    net = mlp()
    loss = nn.WithLossCell(net, nn.MSELoss())
    step = nn.TrainOneStepCell(loss, momentum([*net[2].trainable_params(), net[0].bias]))
    flags_off(net[2].bias)
    assert mg.summary(step).rows == (
        CellSummary("0", 8, 40, 32, 160),
        CellSummary("2", 18, 18, 72, 72),
    )
    assert mg.summary(loss).rows == (
        CellSummary("0", 40, 40, 160, 160),
        CellSummary("2", 16, 18, 64, 72),
    )


def test_g4_a_train_step_is_summed_up_by_what_it_trains():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss(), trainable="2", unreached="allow")
    assert mg.summary(step).rows == (
        CellSummary("0", 0, 40, 0, 160),
        CellSummary("2", 18, 18, 72, 72),
    )
    mg.freeze(net, "2.weight")
    assert mg.summary(step).trainable == 2
    assert mg.summary(net).trainable == 42


def test_a_shell_around_the_network_gives_the_rows_of_the_network():
    net = Layered()
    loss = nn.WithLossCell(net, nn.MSELoss())
    assert mg.summary(loss).rows == mg.summary(net).rows


class Headed(nn.Cell):
    """A child named like a shell's, but not the only one with parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Dense(2, 2)
        self.head = nn.Dense(2, 1)


def test_a_child_that_is_named_like_a_shell_is_a_row_where_others_have_parameters_too():
    assert [row.cell for row in mg.summary(Headed()).rows] == ["network", "head"]


# --- what cannot be summed up


def test_a_network_that_is_no_cell_is_refused():
    with pytest.raises(mg.ArgumentTypeError, match=r"net \[\] is no Cell; give the network or its"):
        mg.summary([])  # pyright: ignore[reportArgumentType]


def test_two_parameters_of_one_name_are_refused():
    net = mlp()
    net[2].weight.name = "0.weight"
    with pytest.raises(mg.ConflictError, match=r"'0\.weight' belongs to two parameters, at '0\."):
        mg.summary(net)


def test_what_a_hold_keeps_is_not_trainable():
    net = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 2))
    optimizer = mg.HoldOptimizer(nn.SGD(net.trainable_params(), 0.1))
    optimizer.hold("0")
    optimizer.hold_rows("1.weight", [1])
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    first, second = mg.summary(step).rows
    assert (first.trainable, first.total) == (0, 9)
    # one of two rows of three, and both biases
    assert (second.trainable, second.trainable_bytes) == (3 + 2, 20)


def test_rows_of_a_depth_are_those_of_the_cells_there():
    block = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 2))
    net = nn.SequentialCell(block, nn.Dense(2, 1))
    mg.freeze(net, "0.0")
    rows = {row.cell: (row.trainable, row.total) for row in mg.summary(net, depth=2).rows}
    assert rows == {"0.0": (0, 9), "0.1": (8, 8), "1": (3, 3)}
    assert [row.cell for row in mg.summary(net).rows] == ["0", "1"]
    with pytest.raises(mg.ArgumentError, match="depth 0 is no depth"):
        mg.summary(net, depth=0)
