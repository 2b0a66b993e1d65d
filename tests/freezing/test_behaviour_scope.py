"""Which cells are held: options, several freezes, cells frozen in part or standing twice."""

from __future__ import annotations

import copy
import itertools

import pytest

import msgrad as mg
from tests.nets.behaviour_nets import (
    TwoPaths,
    adapts,
    both,
    drops,
    modes,
)

pytestmark = pytest.mark.usefixtures("mode")


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
    assert set().union(*left) == {
        "_msgrad_records",
        "_msgrad_seen_held",
        "_msgrad_states",
    }
