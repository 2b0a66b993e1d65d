"""What frozen cells do lasts: modes, steps, copies, wrappers and checkpoints do not undo it."""

from __future__ import annotations

import copy

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn

import msgrad as mg
from tests.nets.behaviour_nets import (
    Doubled,
    Jitted,
    Make,
    adapts,
    bits,
    both,
    data,
    drops,
    equal,
    modes,
    moved,
    network,
    training_step,
)

pytestmark = pytest.mark.usefixtures("mode")

# --- modes and steps

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


def test_a_cell_frozen_through_itself_is_held_in_the_graph_of_the_cell_around_it():
    net = network(Jitted)
    step = training_step(net)
    x = data((6, 4))
    step(x, x)
    mg.freeze(net[0][1].norm, "*")
    before = bits(net)
    step(x, x)
    held = {f"0.1.norm.{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    assert moved(net, before) == set(before) - held


def test_freezes_that_alternate_at_every_step_compile_each_stage_once():
    net = network(lambda: nn.BatchNorm1d(4))
    first, second = training_step(net), training_step(net)
    x = data((6, 4))
    seen = []
    for _ in range(3):
        before = bits(net)
        with mg.freeze(net, "0"):
            first(x, x)
        seen.append(moved(net, before))
        before = bits(net)
        with mg.freeze(net, "1"):
            second(x, x)
        seen.append(moved(net, before))
    names = set(bits(net))
    assert seen == [{"1.shift"}, names - {"1.shift"}] * 3
    graph = ms.get_context("mode") == ms.GRAPH_MODE
    assert (first.compilations, second.compilations) == ((1, 1) if graph else (0, 0))


def evaluated(net: nn.Cell, x: Tensor) -> Tensor:
    """What plain MindSpore gives for the first part, normalising with the moving statistics."""
    for _, cell in net.cells_and_names():
        if "use_batch_statistics" in cell.__dict__:
            cell.use_batch_statistics = False
    return net.set_train(False)[0](x)


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(4), Jitted], ids=["norm", "jitted"])
def test_a_bare_network_is_compiled_once_for_each_state_it_is_in(make: Make):
    net = network(make).set_train()
    x = data((6, 4))
    compiled = []
    for _ in range(3):
        with mg.freeze(net, "0"):
            before = bits(net)
            net(x)
            assert moved(net, before) == set()
        net(x)
        assert {n.rsplit("_")[0].rsplit(".")[-1] for n in moved(net, before)} == {"moving"}
        compiled.append(len(net.compile_cache))
    assert compiled == [2 if ms.get_context("mode") == ms.GRAPH_MODE else 0] * 3


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(4), Jitted], ids=["norm", "jitted"])
def test_a_graph_compiled_while_a_mode_was_set_by_hand_is_not_used_again(make: Make):
    net = network(make).set_train()
    norm = next(c for _, c in net.cells_and_names() if isinstance(c, nn.BatchNorm1d))
    x = data((6, 4))
    mg.freeze(net, "0")
    norm.use_batch_statistics = True
    net(x)
    mg.freeze(net, "0")
    before = bits(net)
    net(x)
    assert moved(net, before) == set()


# --- copies, wrappers, MindSpore's own changes to a network, checkpoints


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


def test_an_export_in_training_mode_holds_what_is_frozen():
    net = network(lambda: nn.SequentialCell(nn.BatchNorm1d(4), nn.Dropout(p=0.5)))
    x = data((6, 4))
    expected = evaluated(copy.deepcopy(net), x)
    mg.freeze(net, "0")
    ms.export(net[0].set_train(), x, file_name="held", file_format="MINDIR")
    exported = nn.GraphCell(ms.load("held.mindir"))
    np.testing.assert_allclose(exported(x).asnumpy(), expected.asnumpy(), rtol=1e-6)


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
