"""What frozen cells do: norm statistics, dropout, and all that reads the mode."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, mint, nn, ops

import msgrad as mg
from tests.behaviour_nets import (
    Branching,
    Doubled,
    FunctionalDropout,
    GuardedDropout,
    Jitted,
    Recurrent,
    Shift,
    TwoPaths,
)

pytestmark = pytest.mark.usefixtures("mode")
Make = Callable[[], nn.Cell]

NORMS = [
    pytest.param(lambda: nn.BatchNorm1d(4), (6, 4), id="bn1d"),
    pytest.param(lambda: nn.BatchNorm2d(2), (4, 2, 3, 3), id="bn2d"),
    pytest.param(lambda: nn.BatchNorm3d(2), (4, 2, 2, 2, 2), id="bn3d"),
    pytest.param(lambda: nn.BatchNorm1d(4, use_batch_statistics=True), (6, 4), id="bn1d-batch"),
    pytest.param(
        lambda: nn.BatchNorm3d(2, use_batch_statistics=True), (4, 2, 2, 2, 2), id="bn3d-batch"
    ),
    pytest.param(lambda: nn.BatchNorm1d(4, affine=False), (6, 4), id="bn1d-plain"),
    pytest.param(lambda: nn.SyncBatchNorm(2), (4, 2, 3, 3), id="sync"),
    pytest.param(lambda: mint.nn.SyncBatchNorm(2), (4, 2, 3, 3), id="mint-sync"),
]
RELEASED = [
    NORMS[0],
    NORMS[4],
    NORMS[7],
    pytest.param(lambda: nn.Dropout(p=0.5), (6, 4), id="dropout"),
]
MODAL = [
    pytest.param(lambda: nn.Dropout(p=0.5), (6, 4), id="dropout"),
    pytest.param(lambda: nn.Dropout1d(p=0.5), (6, 4, 3), id="dropout1d"),
    pytest.param(lambda: nn.Dropout2d(p=0.5), (6, 4, 3, 3), id="dropout2d"),
    pytest.param(lambda: nn.Dropout3d(p=0.5), (6, 4, 3, 3, 3), id="dropout3d"),
    pytest.param(Recurrent, (2, 3, 4), id="lstm"),
    pytest.param(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True),
        (2, 3, 4),
        id="encoder",
    ),
    pytest.param(Branching, (6, 4), id="own"),
    pytest.param(FunctionalDropout, (6, 4), id="function"),
    pytest.param(GuardedDropout, (6, 4), id="guarded"),
    pytest.param(Jitted, (6, 4), id="jitted"),
]
MINT = [
    pytest.param(lambda: mint.nn.BatchNorm1d(4), id="bn1d"),
    pytest.param(lambda: mint.nn.BatchNorm2d(4), id="bn2d"),
    pytest.param(lambda: mint.nn.BatchNorm3d(4), id="bn3d"),
]


def network(make: Make) -> nn.SequentialCell:
    """A part with the cell in it, to be frozen as `"0"`, and a part to be trained."""
    return nn.SequentialCell(nn.SequentialCell(Shift(), make()), Shift())


def like(net: nn.Cell, make: Make) -> nn.SequentialCell:
    """The same network again; MindSpore cannot copy a Dropout2d."""
    twin = network(make)
    for mine, other in zip(net.get_parameters(), twin.get_parameters(), strict=True):
        other.set_data(Tensor(mine.asnumpy().copy()))
    return twin


def data(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(1.0, 2.0, shape).astype(np.float32))


def bits(net: nn.Cell) -> dict[str, bytes]:
    return {p.name: p.asnumpy().tobytes() for p in net.get_parameters()}


def moved(net: nn.Cell, before: dict[str, bytes]) -> set[str]:
    return {name for name, value in bits(net).items() if value != before[name]}


def modes(net: nn.Cell) -> list[object]:
    """The mode of every cell, and what its norms are told about statistics."""
    cells = [cell for _, cell in net.cells_and_names()]
    return [(c.training, c.__dict__.get("use_batch_statistics")) for c in cells]


def evaluated(net: nn.Cell, x: Tensor) -> Tensor:
    """What plain MindSpore gives for the first part, normalising with the moving statistics."""
    for _, cell in net.cells_and_names():
        if "use_batch_statistics" in cell.__dict__:
            cell.use_batch_statistics = False
    return net.set_train(False)[0](x)


def equal(a: Tensor, b: Tensor) -> bool:
    return a.asnumpy().tobytes() == b.asnumpy().tobytes()


def sgd(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1)


def training_step(net: nn.Cell) -> mg.TrainStep:
    step = mg.TrainStep(net, sgd, nn.MSELoss(), unreached="allow")
    step.set_train()
    return step


# --- what is held


@pytest.mark.parametrize(("make", "shape"), NORMS + MODAL)
def test_a_frozen_cell_in_training_gives_each_row_what_plain_mindspore_gives_it_in_evaluation(
    make: Make, shape: tuple[int, ...]
):
    net = network(make)
    plain = like(net, make)
    x = data(shape)
    expected = evaluated(plain, x)
    mg.freeze(net, "0")
    net.set_train()
    before = bits(net)
    assert equal(net[0](x), expected)
    assert equal(net[0](x), expected)
    other_mates = ops.concat((x[:1], data(shape, seed=1)[1:]))
    assert equal(net[0](other_mates)[0], expected[0])
    assert moved(net, before) == set()
    # made anew, since MindSpore forgets no graph of a method under ms.jit
    plain = network(make).set_train()
    before = bits(plain)
    assert not equal(plain[0](x), expected) or moved(plain, before)


@pytest.mark.parametrize(("make", "shape"), RELEASED)
def test_undoing_the_freeze_lets_the_cell_train_as_if_it_never_was(
    make: Make, shape: tuple[int, ...]
):
    net = network(make)
    plain = like(net, make).set_train()
    x = data(shape)
    frozen = mg.freeze(net, "0")
    net.set_train()
    net[0](x)
    frozen.undo()
    assert modes(net) == modes(plain)
    before = bits(net)
    plain[0](x)
    trained = net[0](x)
    assert bits(net) == bits(plain)
    assert moved(net, before) or not equal(trained, net[0](x))


def test_a_norm_that_never_uses_the_batch_is_left_as_it_was():
    net = network(lambda: nn.BatchNorm1d(4, use_batch_statistics=False))
    frozen = mg.freeze(net, "0")
    net.set_train()
    assert net[0][1].use_batch_statistics is False
    frozen.undo()
    assert net[0][1].use_batch_statistics is False
    assert net[0][1].training


@pytest.mark.parametrize("make", MINT)
def test_a_norm_without_a_cpu_kernel_has_the_flags_that_hold_it(make: Make):
    net = network(make)
    frozen = mg.freeze(net, "0")
    net.set_train()
    assert net[0][1].training is False
    assert net[1].training is True
    frozen.undo()
    assert net[0][1].training is True


def test_five_training_steps_leave_the_frozen_part_and_move_the_rest_as_in_plain_mindspore():
    def make() -> nn.SequentialCell:
        frozen = nn.SequentialCell(
            nn.Dense(4, 4),
            nn.BatchNorm1d(4),
            nn.BatchNorm1d(4, use_batch_statistics=True),
            nn.Dropout(p=0.5),
        )
        return nn.SequentialCell(frozen, nn.Dense(4, 4), nn.BatchNorm1d(4))

    net = make()
    plain = copy.deepcopy(net)
    x, y = data((6, 4)), data((6, 4), seed=1)
    mg.freeze(net, "0")
    before = bits(net)
    step = training_step(net)
    for _ in range(5):
        step(x, y)
    trained = {"1.weight", "1.bias", "2.gamma", "2.beta", "2.moving_mean", "2.moving_variance"}
    assert moved(net, before) == trained

    inner = nn.TrainOneStepCell(
        nn.WithLossCell(plain, nn.MSELoss()), sgd(plain[1:].trainable_params())
    ).set_train()
    plain[0].set_train(False)
    plain[0][2].use_batch_statistics = False
    for _ in range(5):
        inner(x, y)
    values = {p.name: p.asnumpy() for p in plain.get_parameters()}
    for p in net.get_parameters():
        # the last bits differ between two graphs on the CPU
        np.testing.assert_allclose(p.asnumpy(), values[p.name], rtol=1e-4, atol=1e-6)


def test_an_optimizer_of_mindspore_built_after_the_freeze_leaves_the_frozen_part():
    net = both()
    mg.freeze(net, "0")
    loss = nn.WithLossCell(net, nn.MSELoss())
    step = nn.TrainOneStepCell(loss, sgd(net.trainable_params())).set_train()
    before = bits(net)
    x = data((6, 4))
    step(x, x)
    assert moved(net, before) == {"1.0.weight", "1.0.bias"}


def test_a_frozen_critic_passes_the_gradient_and_a_stopped_one_does_not():
    maker, critic = nn.Dense(4, 4), nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4))
    net = nn.SequentialCell(maker, critic)
    plain = copy.deepcopy(net)
    x, y = data((6, 4)), data((6, 4), seed=1)
    mg.freeze(net, "1")
    step = training_step(net)
    before = bits(net)
    step(x, y)
    assert moved(net, before) == {"0.weight", "0.bias"}
    plain[1].set_train(False)
    loss = nn.WithLossCell(plain, nn.MSELoss())
    nn.TrainOneStepCell(loss, sgd(plain[0].trainable_params()))(x, y)
    # the last bits differ between two graphs on the CPU
    np.testing.assert_allclose(maker.weight.asnumpy(), plain[0].weight.asnumpy(), 1e-5, 1e-6)
    mg.stop_gradient(net, "1", at="input")
    assert mg.reach(net, x) == ["1.0.weight", "1.0.bias", "1.1.gamma", "1.1.beta"]
    with pytest.raises(ValueError, match=r"nothing is left to train.*4 frozen.*2 that no gradient"):
        mg.TrainStep(net, sgd, nn.MSELoss())(x, y)


# --- what does not undo it (B3, B4)

ACTIONS = [
    pytest.param([], id="nothing"),
    pytest.param([(True, ())], id="train"),
    pytest.param([(False, ())], id="evaluate"),
    pytest.param([(True, ()), (False, ()), (True, ())], id="evaluate-between"),
    pytest.param([(False, ()), (True, (0,))], id="train-the-frozen-part"),
    pytest.param([(False, ()), (True, (0, 1))], id="train-one-frozen-cell"),
    pytest.param([(True, ()), (False, (0, 1))], id="evaluate-one-frozen-cell"),
]


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("before", [True, False], ids=["was-training", "was-evaluating"])
def test_set_train_does_not_reach_through_and_is_remembered(before: bool, actions: list):
    net = network(lambda: nn.BatchNorm1d(4)).set_train(before)
    plain = copy.deepcopy(net)
    frozen = mg.freeze(net, "0")
    for mode, path in actions:
        for root in (net, plain):
            cell: nn.Cell = root
            for index in path:
                cell = cell[index]
            cell.set_train(mode)
        assert [c.training for _, c in net[0].cells_and_names()] == [False] * 3
        assert net[1].training == plain[1].training
    frozen.undo()
    assert modes(net) == modes(plain)


def test_a_mode_set_by_hand_is_taken_back_by_the_next_step_and_remembered():
    net = network(lambda: nn.BatchNorm1d(4, use_batch_statistics=True))
    frozen = mg.freeze(net, "0")
    step = training_step(net)
    x = data((6, 4))
    step(x, x)
    net[0][1].training = True
    net[0][1].use_batch_statistics = True
    before = bits(net)
    step(x, x)
    assert moved(net, before) == {"1.shift"}
    frozen.undo()
    assert modes(net[0]) == [(True, None), (True, None), (True, True)]


def test_what_a_norm_is_told_while_held_is_not_overwritten():
    net = network(lambda: nn.BatchNorm1d(4, use_batch_statistics=True))
    frozen = mg.freeze(net, "0")
    net[0][1].use_batch_statistics = None
    frozen.undo()
    assert net[0][1].use_batch_statistics is None


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(4), Jitted], ids=["norm", "jitted"])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_a_freeze_after_the_first_step_holds_from_the_very_next(make: Make, part: bool):
    net = network(make)
    step = training_step(net)
    x = data((6, 4))
    step(x, x)
    before = bits(net)
    frozen = mg.freeze(net[0], "*") if part else mg.freeze(net, "0")
    step(x, x)
    assert moved(net, before) == {"1.shift"}
    compiled = step.compilations
    frozen.undo()
    before = bits(net)
    step(x, x)
    assert {n for n in moved(net, before) if "moving" in n} == {n for n in before if "moving" in n}
    mg.freeze(net, "0")
    before = bits(net)
    step(x, x)
    assert moved(net, before) == {"1.shift"}
    assert step.compilations == compiled


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(4), Jitted], ids=["norm", "jitted"])
def test_a_freeze_after_the_first_call_of_a_bare_network_holds_at_the_next(make: Make):
    net = network(make).set_train()
    x = data((6, 4))
    net(x)
    frozen = mg.freeze(net, "0")
    before = bits(net)
    held = net(x)
    assert moved(net, before) == set()
    assert equal(held, net(x))
    frozen.undo()
    net(x)
    assert {n.rsplit(".", 1)[1] for n in moved(net, before)} == {"moving_mean", "moving_variance"}


# --- options (B5)


def both() -> nn.SequentialCell:
    return nn.SequentialCell(
        nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4)),
        nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5)),
    )


def adapts(net: nn.Cell) -> bool:
    before = bits(net)
    net(data((6, 4)))
    return bool(moved(net, before))


def drops(net: nn.SequentialCell) -> bool:
    x = data((6, 4))
    return not equal(net[1](x), net[1][0](x))


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("dropout", [True, False])
def test_statistics_and_dropout_are_held_unless_opted_out(statistics: bool, dropout: bool):
    net = both()
    mg.freeze(net, "*", statistics=statistics, dropout=dropout)
    net.set_train()
    assert adapts(net) is not statistics
    assert drops(net) is not dropout


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_freezes_with_different_options_are_undone_in_any_order(order: tuple[int, ...]):
    net = both()
    net[0][1].use_batch_statistics = True
    net.set_train()
    plain = copy.deepcopy(net)
    options = [(True, False), (False, True), (False, False)]
    freezes = [mg.freeze(net, "*", statistics=s, dropout=d) for s, d in options]
    standing = set(range(3))
    for number in order:
        assert net[0][1].training is not any(options[n][0] for n in standing)
        assert net[1][1].training is not any(options[n][1] for n in standing)
        freezes[number].undo()
        standing.remove(number)
    assert modes(net) == modes(plain)


def test_two_freezes_that_together_cover_a_cell_hold_it():
    net = both().set_train()
    first = mg.freeze(net, "0.0", "0.1.gamma")
    assert net[0][1].training
    second = mg.freeze(net, "0.1.beta")
    assert not net[0][1].training
    assert not net[0].training
    first.undo()
    assert net[0][1].training
    second.undo()
    assert net[0].training


# --- mixed cells, and cells in two places


def test_a_cell_that_is_frozen_in_part_behaves_as_before():
    net = both().set_train()
    mg.freeze(net, "0.1.gamma", "1.0.bias")
    assert adapts(net)
    assert drops(net)
    assert mg.frozen_state(net, "0.1") == "mixed"


def test_a_cell_without_weights_is_held_where_all_its_places_are_frozen():
    net = TwoPaths().set_train()
    shared, frozen = net.low[1], net.low[2]
    mg.freeze(net, "low", "middle")
    assert shared.training
    assert not frozen.training
    mg.freeze(net, "high")
    assert not shared.training


def test_the_cells_stay_the_same_objects_of_the_same_class():
    net = both()
    before = [(id(c), type(c)) for _, c in net.cells_and_names()]
    mg.freeze(net, "*")
    assert [(id(c), type(c)) for _, c in net.cells_and_names()] == before


def test_nothing_is_left_behind_in_a_cell_that_is_released():
    net = both().set_train()
    before = [set(c.__dict__) for _, c in net.cells_and_names()]
    mg.freeze(net, "*").undo()
    left = [
        set(c.__dict__) - keys for (_, c), keys in zip(net.cells_and_names(), before, strict=True)
    ]
    assert set().union(*left) == {"_msgrad_records", "_msgrad_seen_held"}


# --- copies, wrappers, MindSpore's own changes to a network


def test_a_copy_of_a_held_network_is_held_on_its_own():
    net = both()
    frozen = mg.freeze(net, "*")
    twin = copy.deepcopy(net)
    frozen.undo()
    for root in (net, twin):
        root.set_train()
    assert adapts(net)
    assert drops(net)
    assert not adapts(twin)
    assert not drops(twin)
    mg.unfreeze(twin)
    assert adapts(twin)
    assert modes(twin) == modes(net)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("wrapper", [mg.StopGradient, Doubled], ids=["stop", "own"])
def test_a_wrapped_cell_is_held_with_its_wrapper(wrapper: type[mg.CellWrapper], when: str):
    net = network(lambda: nn.BatchNorm1d(4))
    x = data((6, 4))
    expected = evaluated(copy.deepcopy(net), x)
    if when == "before":
        mg.wrap(net, "0.1", "0", wrapper=wrapper)
    frozen = mg.freeze(net, "0")
    if when == "after":
        mg.wrap(net, "0.1", wrapper=wrapper)
    step = training_step(net)
    before = bits(net)
    step(x, x)
    assert moved(net, before) == {"1.shift"}
    assert equal(net[0](x), expected)
    mg.unwrap(net)
    step(x, x)
    assert moved(net, before) == {"1.shift"}
    frozen.undo()
    assert modes(net) == [(True, None)] * 5
    assert adapts(net)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", ["recompute", "float16", "O2", "O3"])
def test_mindspores_own_changes_keep_what_is_held(change: str, when: str):
    net: nn.Cell = both()
    if when == "before":
        mg.freeze(net, "0")
    if change == "recompute":
        net[0].recompute()
    elif change == "float16":
        net.to_float(ms.float16)
    else:
        net = amp.auto_mixed_precision(net, change)
    if when == "after":
        mg.freeze(net, "0.*")
    step = training_step(net)
    before = bits(net)
    x = data((6, 4))
    losses = [step(x, x) for _ in range(2)]
    assert all(np.isfinite(loss.asnumpy()) for loss in losses)
    assert {n.split(".")[-3] for n in moved(net, before) if "moving" not in n} == {"1"}
    assert {n for n in moved(net, before) if "moving" in n} == set()


def test_a_checkpoint_of_a_held_network_loads_into_a_plain_one_and_back():
    net = both()
    mg.freeze(net, "0")
    net.set_train()
    net(data((6, 4)))
    ms.save_checkpoint(net, "held.ckpt")
    plain = both()
    assert ms.load_param_into_net(plain, ms.load_checkpoint("held.ckpt")) == ([], [])
    assert bits(plain) == bits(net)
    assert {n for n in ms.load_checkpoint("held.ckpt")} == set(bits(plain))
    ms.save_checkpoint(plain.set_train(), "plain.ckpt")
    ms.load_param_into_net(net, ms.load_checkpoint("plain.ckpt"))
    assert mg.is_frozen(net, "0")
    assert not adapts(net)


# --- what trains after an unfreeze (B6)


@pytest.mark.parametrize("force", [False, True])
def test_unfreezing_a_norm_trains_its_weights_and_never_its_statistics(force: bool):
    net = both()
    plain = copy.deepcopy(net).set_train()
    mg.freeze(net, "0")
    mg.unfreeze(net, "0", force=force)
    step = training_step(net)
    before = bits(net)
    x = data((6, 4))
    step(x, x)
    assert {"0.1.gamma", "0.1.beta"} <= moved(net, before)
    assert not {name for name in step.trainable if "moving" in name}
    plain(x)
    # as the batch alone moves them: decay would take another 0.01 of 1.0 away
    for name in ("moving_mean", "moving_variance"):
        np.testing.assert_allclose(
            getattr(net[0][1], name).asnumpy(), getattr(plain[0][1], name).asnumpy(), 1e-5
        )
