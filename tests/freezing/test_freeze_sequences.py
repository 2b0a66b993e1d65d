"""Freezes, unfreezes and undos in any order, against a model of a few lines."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import nn

import msgrad as mg

NAMES = ["0.weight", "0.bias", "1.gamma", "1.beta", "2.0.weight", "2.0.bias"]
# what a cell behaves as in evaluation for, and the option that leaves it out
CELLS = {"0": "dropout", "1": "statistics", "2": "dropout", "2.1": "dropout"}
INSIDE = {
    "0": NAMES[:2],
    "1": NAMES[2:4],
    "2": NAMES[4:],
    "2.1": NAMES[4:],
}
SOME = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True)
ACTIONS = st.one_of(
    st.tuples(st.just("freeze"), SOME, st.booleans(), st.booleans()),
    st.tuples(st.just("unfreeze"), SOME),
    st.tuples(st.just("undo"), st.integers(0, 11)),
    st.tuples(st.just("set_train"), st.booleans()),
)


class Model:
    """Claims as sets of names; what an unfreeze lifted comes back with its undo."""

    def __init__(self) -> None:
        self.claims: list[dict[str, Any]] = []
        self.lifted: dict[int, list[tuple[dict[str, Any], str]]] = {}
        self.training = False

    def freeze(self, names: list[str], statistics: bool, dropout: bool) -> dict[str, Any]:
        claim = {"on": set(names), "statistics": statistics, "dropout": dropout, "undone": False}
        self.claims.append(claim)
        return claim

    def unfreeze(self, names: list[str]) -> list[tuple[dict[str, Any], str]]:
        gone = [(c, n) for c in self.claims for n in names if n in c["on"]]
        for claim, name in gone:
            claim["on"].discard(name)
        return gone

    def undo(self, change: Any) -> None:
        if isinstance(change, dict):
            change["on"].clear()
            change["undone"] = True
            return
        for claim, name in change:
            if not claim["undone"]:
                claim["on"].add(name)

    def frozen(self) -> set[str]:
        return set().union(*(c["on"] for c in self.claims))

    def trains(self, cell: str) -> bool:
        wish = CELLS[cell]
        held = set().union(*(c["on"] for c in self.claims if c[wish]))
        return self.training and not set(INSIDE[cell]) <= held


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=12))
def test_any_sequence_leaves_the_flags_and_modes_that_the_claims_ask_for(actions: list[Any]):
    net = nn.SequentialCell(
        nn.Dense(2, 2), nn.BatchNorm1d(2), nn.SequentialCell(nn.Dense(2, 2), nn.Dropout(p=0.5))
    )
    model = Model()
    changes: list[tuple[mg.Freeze, Any]] = []
    for action, *given_ in actions:
        if action == "freeze":
            names, statistics, dropout = given_
            made = mg.freeze(net, names, statistics=statistics, dropout=dropout)
            changes.append((made, model.freeze(*given_)))
        elif action == "unfreeze":
            changes.append((mg.unfreeze(net, *given_), model.unfreeze(*given_)))
        elif action == "set_train":
            net.set_train(*given_)
            model.training = given_[0]
        elif given_[0] < len(changes):
            # a second undo does nothing
            made, change = changes[given_[0]]
            made.undo()
            model.undo(change)
            changes[given_[0]] = (made, [])
    assert {n for n in NAMES if mg.is_frozen(net, n)} == model.frozen()
    assert [p.name for p in net.trainable_params()] == [n for n in NAMES if n not in model.frozen()]
    cells = dict(net.cells_and_names())
    assert {c: cells[c].training for c in CELLS} == {c: model.trains(c) for c in CELLS}
