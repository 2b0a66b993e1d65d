"""How often an operation walks a network: what one walk found is handed on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mindspore import Parameter, nn

import msgrad as mg
from msgrad.network import _tree, every_cell, one_walk, tree_of


def made() -> nn.SequentialCell:
    block = nn.SequentialCell(nn.Dense(2, 2), nn.BatchNorm1d(2))
    return nn.SequentialCell(block, nn.Dense(2, 2))


def sgd(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.1)


def freezing(net: nn.Cell) -> Callable[[], object]:
    return lambda: mg.freeze(net, "0")


def stepping(net: nn.Cell) -> Callable[[], object]:
    return lambda: mg.TrainStep(net, sgd, nn.MSELoss())


def planning(net: nn.Cell) -> Callable[[], object]:
    plan = mg.Plan.from_dict({"stages": [{"train": "1", "epochs": 1}, {"train": "*"}]})
    return lambda: plan.train_step(net, sgd, nn.MSELoss())


def changing(net: nn.Cell) -> Callable[[], object]:
    step = mg.TrainStep(net, sgd, nn.MSELoss())
    schedule = mg.Schedule(step, [mg.Stage(train="1", epochs=1), mg.Stage(train="*")])
    schedule.at(epoch=0)
    return lambda: schedule.at(epoch=1)


def explaining(net: nn.Cell) -> Callable[[], object]:
    return lambda: mg.explain(net, "0.0.weight")


@pytest.mark.parametrize(
    ("prepare", "most"),
    [(freezing, 1), (stepping, 3), (planning, 5), (changing, 2), (explaining, 1)],
    ids=["freeze", "TrainStep", "plan", "stage", "explain"],
)
def test_an_operation_walks_the_network_so_often(
    prepare: Callable[[nn.Cell], Callable[[], object]],
    most: int,
    monkeypatch: pytest.MonkeyPatch,
):
    net = made()
    call = prepare(net)
    walked: list[nn.Cell] = []
    for name in ("_walk", "_walk_once"):
        original = getattr(_tree, name)

        def counted(root: nn.Cell, original: Callable = original) -> object:
            walked.append(root)
            return original(root)

        monkeypatch.setattr(_tree, name, counted)
    call()
    monkeypatch.undo()
    whole = [root for root in walked if any(cell is net for cell in every_cell(root))]
    assert 1 <= len(whole) <= most


def wrapped_and_shared() -> nn.Cell:
    net = made()
    shared = nn.Dense(2, 2)
    net.append(nn.SequentialCell(shared, nn.SequentialCell(shared)))
    mg.stop_gradient(net, "0.0")
    mg.wrap(net, "1", wrapper=lambda cell: mg.LoRA(cell, rank=1))
    mg.stop_gradient(net, "1")
    return net


def test_the_tree_lists_the_cells_in_the_order_of_a_lone_walk_and_children_first():
    net = wrapped_and_shared()
    tree = tree_of(net)
    assert list(map(id, tree.cells)) == list(map(id, every_cell(net)))
    places = {id(cell): place for place, cell in enumerate(tree.children_first)}
    assert places.keys() == set(map(id, tree.cells))
    for cell in tree.cells:
        for child in _tree.children(cell):
            assert places[id(child)] < places[id(cell)]


def test_what_changes_the_network_in_an_operation_is_seen_in_it():
    net = made()
    with one_walk():
        before = every_cell(net)
        mg.stop_gradient(net, "1")
        assert len(every_cell(net)) == len(before) + 1
        mg.unwrap(net)
        assert list(map(id, every_cell(net))) == list(map(id, before))
    net.append(nn.ReLU())
    assert len(every_cell(net)) == len(before) + 1
