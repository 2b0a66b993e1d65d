"""The record of a parameter: where it lies, what it keeps alive, what it costs."""

from __future__ import annotations

import copy
import gc
import time
import weakref

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from msgrad.freezing import records_of
from tests.nets.behaviour_nets import Containers, Gained


def pair() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 2))


def ones(*shape: int, name: str) -> Parameter:
    return Parameter(Tensor(np.ones(shape, np.float32)), name=name)


def trainable(net: nn.Cell) -> list[str]:
    return [p.name for p in net.trainable_params()]


# --- weights and cells that are exchanged after a freeze


def test_a_replaced_weight_is_not_kept_alive_by_the_freeze():
    net = pair()
    frozen = mg.freeze(net, "0")
    old = weakref.ref(net[0].weight)
    net[0].weight = ones(4, 4, name="0.weight")
    gc.collect()
    assert old() is None
    frozen.undo()
    assert mg.frozen_state(net) == "trainable"


def test_a_weight_put_in_the_place_of_a_frozen_one_is_a_new_one():
    net = pair().set_train()
    frozen = mg.freeze(net, "1")
    net[1].gamma = ones(4, name="1.gamma")
    assert mg.frozen_state(net, "1") == "mixed"
    mg.freeze(net, "0")
    assert net[1].training
    assert not net[0].training
    net[1].gamma.requires_grad = False
    frozen.undo()
    assert net[1].gamma.requires_grad is False
    assert net[1].beta.requires_grad is True


def test_a_cell_added_to_a_frozen_one_trains_and_the_others_stay_held():
    net = nn.SequentialCell(nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4))).set_train()
    mg.freeze(net, "0")
    net[0].append(nn.BatchNorm1d(4).set_train())
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss())
    assert [id(p) for p in step.optimizer.parameters] == [id(net[0][2].gamma), id(net[0][2].beta)]
    assert [c.training for c in net[0]] == [False, False, True]


def test_undo_after_the_network_is_gone_does_no_harm():
    net = nn.SequentialCell(pair())
    frozen = mg.freeze(net, "0.0")
    net[0][0] = nn.Dense(4, 4)
    gc.collect()
    frozen.undo()
    assert mg.frozen_state(net) == "trainable"


# --- where a record lies


def test_a_copied_weight_is_known_in_any_network_it_is_put_into():
    net = pair()
    mg.freeze(net, "0")
    twin = copy.deepcopy(net)
    other = nn.Dense(4, 4)
    other.weight = twin[0].weight
    assert mg.is_frozen(other, "weight")
    mg.unfreeze(other)
    assert mg.frozen_state(twin, "0") == "mixed"
    assert mg.is_frozen(net, "0")


def test_a_clone_is_a_weight_of_its_own():
    net = pair()
    mg.freeze(net, "0")
    other = nn.Dense(4, 4)
    other.weight = net[0].weight.clone()
    assert not records_of(other)[id(other.weight)].claims
    mg.unfreeze(other, force=True)
    assert trainable(other) == ["0.weight", "bias"]
    assert mg.is_frozen(net, "0")


def test_one_weight_in_two_networks_has_one_record():
    first, second = pair(), nn.Dense(4, 4)
    second.weight = first[0].weight
    both = nn.CellList([first, second])
    frozen = mg.freeze(second, "*")
    assert [mg.frozen_state(net) for net in (first, second, both)] == ["mixed", "frozen", "mixed"]
    mg.unfreeze(first)
    frozen.undo()
    assert mg.frozen_state(both) == "trainable"


@pytest.mark.parametrize("make", [Containers, lambda: Gained(pair()), pair])
def test_records_stand_in_the_order_of_the_network(make):
    net = make()
    assert [r.parameter.name for r in records_of(net).values()] == [
        p.name for p in net.get_parameters()
    ]


def test_weights_in_tuples_and_containers_are_frozen_like_any_other():
    net = Containers()
    before = trainable(net)
    with mg.freeze(net, "w0", "items", "table.left.bias"):
        assert trainable(net) == ["w1", "table.left.weight"]
        assert not net.again.training
    assert trainable(net) == before


# --- what it costs


def test_a_freeze_costs_less_than_making_the_network():
    def cost(action):
        start = time.process_time()
        action()
        return time.process_time() - start

    nets: list[nn.Cell] = []
    parts = range(700)
    making = cost(
        lambda: nets.append(
            nn.CellList(
                [
                    nn.SequentialCell(nn.Dense(1, 1), nn.BatchNorm1d(1), nn.Dropout(p=0.5))
                    for _ in parts
                ]
            )
        )
    )
    assert cost(lambda: mg.freeze(nets[0], "*")) < making


def test_a_network_deeper_than_the_recursion_limit_is_frozen_and_held():
    inside = nn.SequentialCell(nn.Dense(1, 1), nn.Dropout(p=0.5)).set_train()
    net: nn.Cell = inside
    for _ in range(3000):
        # without names, which MindSpore limits to 1024 characters
        outer = nn.Cell(auto_prefix=False)
        outer._cells["a"] = net
        net = outer
    with mg.freeze(net, "*"):
        assert [c.training for c in inside] == [False, False]
        assert mg.is_frozen(net)
    assert [c.training for c in inside] == [True, True]
