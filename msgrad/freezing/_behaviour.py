"""Holding the behaviour of wholly frozen cells: norm statistics, dropout, what reads `training`.

A cell is held by an `add_flags` of its own: `set_train` reaches each cell through it, from any
ancestor, and what it asks for is remembered until the release. A method, not a closure, so that a
deep copy is bound anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType

from mindspore import Parameter, nn

from msgrad.freezing import _claims
from msgrad.freezing._claims import BY_FLAG, records_of, statistic_names
from msgrad.freezing._writes import forward_writes
from msgrad.network import (
    children,
    collector_paused,
    every_cell,
    forget_compiled,
    recall_compiled,
    tree_of,
)

_HELD = "_msgrad_held"
_SEEN = "_msgrad_seen_held"
_BATCH = "use_batch_statistics"


def _held_add_flags(self: nn.Cell, **flags: object) -> nn.Cell:
    if "training" in flags:
        self.__dict__[_HELD]["training"] = flags["training"]
        flags = {**flags, "training": False}
    return type(self).add_flags(self, **flags)


def is_held(cell: nn.Cell) -> bool:
    """Whether a cell behaves as in evaluation because it is frozen."""
    return _HELD in cell.__dict__


def asked_to_train(cell: nn.Cell) -> bool:
    """Whether `set_train` put a cell in training, which a held cell does not show."""
    return cell.__dict__.get(_HELD, {}).get("training", cell.training)


def _hold(cell: nn.Cell) -> None:
    cell.__dict__[_HELD] = {"training": cell.training}
    cell.__dict__["add_flags"] = MethodType(_held_add_flags, cell)
    _hold_again(cell)


def _hold_again(cell: nn.Cell) -> bool:
    """Hold what was set by hand, past `add_flags`, and remember it; say whether there was any."""
    held = cell.__dict__[_HELD]
    by_hand = False
    if cell.training:
        held["training"] = by_hand = True
        type(cell).add_flags(cell, training=False)
    # construct reads this before `training`
    if cell.__dict__.get(_BATCH) is True:
        held[_BATCH] = by_hand = True
        cell.use_batch_statistics = False
    return by_hand


def _release(cell: nn.Cell) -> None:
    held = cell.__dict__.pop(_HELD)
    del cell.__dict__["add_flags"]
    if _BATCH in held and cell.use_batch_statistics is False:
        cell.use_batch_statistics = True
    cell.add_flags(training=held["training"])


@collector_paused()
def apply_behaviour(net: nn.Cell) -> list[nn.Cell]:
    """Hold every wholly frozen cell of a network, release the others; return those newly held."""
    wanted = wholly_frozen(net)
    fresh, released, by_hand = [], False, False
    cells = every_cell(net)
    for cell in cells:
        if id(cell) not in wanted:
            if is_held(cell):
                _release(cell)
                released = True
        elif is_held(cell):
            by_hand |= _hold_again(cell)
        else:
            _hold(cell)
            fresh.append(cell)
    if by_hand:
        forget_compiled(net)
    # beside what changed now: what was frozen through a part of this network
    if fresh or released or by_hand or net.__dict__.get(_SEEN, frozenset()) != wanted:
        net.__dict__[_SEEN] = wanted
        recall_compiled(net, tuple((id(c), is_held(c), c.training) for c in cells))
    return fresh


def wholly_frozen(net: nn.Cell) -> frozenset[int]:
    """Return the ids of the cells whose behaviour is to be held.

    A cell is wholly frozen when its subtree has parameters that are trainable by design or claimed,
    and all of these are claimed; cells without such parameters follow the cells they stand in, all
    of them where they stand in several.
    """
    records = _claims.records_of(net)
    order = tree_of(net).children_first
    by_statistics = _whole(net, order, records, "statistics")
    claims = {claim for record in records.values() for claim in record.claims}
    if all(claim.statistics == claim.dropout for claim in claims):
        by_dropout = by_statistics
    else:
        by_dropout = _whole(net, order, records, "dropout")
    return frozenset(
        id(cell)
        for cell in order
        if id(cell) in (by_statistics if _claims.is_norm(cell) else by_dropout)
    )


def _whole(
    net: nn.Cell, order: list[nn.Cell], records: dict[int, _claims.Record], wish: str
) -> set[int]:
    state = _subtree_states(order, records, wish)
    free: set[int] = set()  # reached on a way without any wholly frozen cell
    stack = [net]
    while stack:
        cell = stack.pop()
        if id(cell) in free or state[id(cell)] is True:
            continue
        free.add(id(cell))
        stack.extend(children(cell))
    return {id(cell) for cell in order if id(cell) not in free and state[id(cell)] is not False}


def _subtree_states(
    order: list[nn.Cell], records: dict[int, _claims.Record], wish: str
) -> dict[int, bool | None]:
    """Say of each cell: all claimed (True), not all (False), nothing trainable by design (None)."""
    state: dict[int, bool | None] = {}
    for cell in order:
        below = [state[id(child)] for child in children(cell)]
        own = [
            any(getattr(claim, wish) for claim in records[id(p)].claims)
            for p in cell.__dict__["_params"].values()
            if p is not None and records[id(p)].counts
        ]
        known = [s for s in below + own if s is not None]
        state[id(cell)] = all(known) if known else None
    return state


def note_moving(net: nn.Cell, weights: Iterable[Parameter]) -> None:
    """Note that these weights, and the statistics that adapt now, may move from here on."""
    records = records_of(net)
    for key in ({id(weight) for weight in weights} | _adapting(net)) & records.keys():
        records[key].has_moved = True
    for record in records.values():
        if record.held_by_flag:
            record.past.add(BY_FLAG)


def may_have_moved(net: nn.Cell) -> list[Parameter]:
    """List the parameters that trained or adapted at some time, or would now, in network order.

    Examples:
        >>> from msgrad.freezing import freeze
        >>> net = nn.SequentialCell(nn.BatchNorm1d(2), nn.Dense(2, 1), nn.BatchNorm1d(1))
        >>> _ = freeze(net, "0", "2.gamma")
        >>> [p.name for p in may_have_moved(net)]
        ['1.weight', '1.bias', '2.moving_mean', '2.moving_variance', '2.beta']
    """
    adapting = _adapting(net)
    return [
        record.parameter
        for key, record in records_of(net).items()
        if record.has_moved or record.trains or key in adapting
    ]


def _adapting(net: nn.Cell) -> set[int]:
    """Return the ids of the running statistics that no freeze holds, and of what a cell writes."""
    held = wholly_frozen(net)
    return set(forward_writes(net)) | {
        id(cell.__dict__["_params"][name])
        for cell in every_cell(net)
        if id(cell) not in held
        for name in statistic_names(cell)
        if cell.__dict__["_params"].get(name) is not None
    }
