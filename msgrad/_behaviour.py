"""Holding the behaviour of wholly frozen cells: norm statistics, dropout, and all that reads `training`.

A cell is held by an `add_flags` of its own: `set_train` reaches each cell through it, from any ancestor, and
what it asks for is remembered until the release. A method, not a closure, so that a deep copy is bound anew.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from types import MethodType

from mindspore import nn

from msgrad import _claims
from msgrad._cells import children, every_cell, forget_compiled

_HELD = "_msgrad_held"
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
    state = cell.__dict__
    state[_HELD] = {"training": cell.training}
    if state.get(_BATCH) is True:
        # construct reads this before `training`
        state[_HELD][_BATCH] = True
        cell.use_batch_statistics = False
    type(cell).add_flags(cell, training=False)
    state["add_flags"] = MethodType(_held_add_flags, cell)


def _release(cell: nn.Cell) -> None:
    held = cell.__dict__.pop(_HELD)
    del cell.__dict__["add_flags"]
    if _BATCH in held:
        cell.use_batch_statistics = True
    cell.add_flags(training=held["training"])


def apply_behaviour(net: nn.Cell) -> list[nn.Cell]:
    """Hold every wholly frozen cell of a network and release the others; return the cells newly held."""
    wanted = wholly_frozen(net)
    fresh, released = [], False
    for cell in every_cell(net):
        if (id(cell) in wanted) == is_held(cell):
            continue
        if is_held(cell):
            _release(cell)
            released = True
        else:
            _hold(cell)
            fresh.append(cell)
    if fresh or released:
        _claims.changed()
        forget_compiled(net)
    return fresh


def wholly_frozen(net: nn.Cell) -> set[int]:
    """Return the ids of the cells whose behaviour is to be held.

    A cell is wholly frozen when its subtree has parameters that are trainable by design and all are claimed;
    cells without such parameters follow the cells they stand in, all of them where they stand in several.
    """
    cells = every_cell(net)
    records = _claims.see(net)
    by_statistics = _whole(net, cells, records, "statistics")
    by_dropout = _whole(net, cells, records, "dropout")
    return {
        id(cell)
        for cell in cells
        if id(cell) in (by_statistics if _claims.statistic_names(cell) else by_dropout)
    }


def _whole(
    net: nn.Cell, cells: list[nn.Cell], records: dict[int, _claims.Record], wish: str
) -> set[int]:
    state = _subtree_states(cells, records, wish)
    free: set[int] = set()  # reached on a way without any wholly frozen cell
    stack = [net]
    while stack:
        cell = stack.pop()
        if id(cell) in free or state[id(cell)] is True:
            continue
        free.add(id(cell))
        stack.extend(children(cell))
    return {id(cell) for cell in cells if id(cell) not in free and state[id(cell)] is not False}


def _subtree_states(
    cells: list[nn.Cell], records: dict[int, _claims.Record], wish: str
) -> dict[int, bool | None]:
    """Say of each cell: all claimed (True), not all (False), nothing trainable by design (None)."""
    state: dict[int, bool | None] = {}
    for cell in _children_first(cells):
        below = [state[id(child)] for child in children(cell)]
        own = [
            any(getattr(claim, wish) for claim in records[id(p)].claims)
            for p in cell.__dict__["_params"].values()
            if p is not None and records[id(p)].design
        ]
        known = [s for s in below + own if s is not None]
        state[id(cell)] = all(known) if known else None
    return state


def _children_first(cells: list[nn.Cell]) -> Iterator[nn.Cell]:
    done: set[int] = set()
    stack = [(cells[0], False)] if cells else []
    while stack:
        cell, opened = stack.pop()
        if opened:
            yield cell
        elif id(cell) not in done:
            done.add(id(cell))
            stack.append((cell, True))
            stack.extend((child, False) for child in children(cell))


def cannot_hold(cell: nn.Cell) -> str | None:
    """Say why a frozen cell goes on behaving as in training, or None."""
    if isinstance(cell, (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)):
        return "InstanceNorm always normalises with the statistics of its input"
    if getattr(cell, "track_running_stats", None) is False:
        return "it keeps no running statistics to normalise with"
    line = _free_dropout(type(cell))
    if line:
        return f"line {line} of its construct calls dropout without training=self.training"
    return None


@cache
def _free_dropout(kind: type[nn.Cell]) -> int:
    """Return the line of a dropout call that does not depend on `training`, 0 where there is none."""
    if kind.__module__.startswith("mindspore."):
        return 0
    try:
        lines, start = inspect.getsourcelines(kind.construct)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] != "self":
            named = ast.unparse(node.func).split(".")[-1] in ("dropout", "dropout1d", "dropout2d", "dropout3d")
            if named and not any(k.arg == "training" for k in node.keywords):
                return start + node.lineno - 1
    return 0
