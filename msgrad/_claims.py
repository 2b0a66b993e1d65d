"""The record that a network keeps of each of its parameters: design, claims, and the flag they give.

The flag of a parameter is `base` while no claim stands and False while one does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from mindspore import Parameter, nn
from mindspore import dtype as mstype

from msgrad._cells import every_cell

_KEY = "_msgrad_records"
_STATISTICS = (
    frozenset(("moving_mean", "moving_variance")),
    frozenset(("running_mean", "running_var")),
)
_COUNTERS = frozenset(("num_batches_tracked",))
_ticks = count(1)
_version = [0]


def version() -> int:
    """Return a number that grows with every change of a claim or of a held behaviour."""
    return _version[0]


def changed() -> None:
    """Make every step look at its network again."""
    _version[0] = next(_ticks)


class Claim:
    """One freeze: what it was asked for, and what it wants held beside the weights."""

    def __init__(self, patterns: str, *, statistics: bool = True, dropout: bool = True) -> None:
        self.patterns = patterns
        self.statistics = statistics
        self.dropout = dropout
        self.undone = False


class Record:
    """What is known of one parameter, whichever network is asked."""

    def __init__(self, parameter: Parameter, *, statistic: bool) -> None:
        self.parameter = parameter
        self.statistic = statistic
        self.floating = parameter.dtype in mstype.float_type or parameter.dtype in mstype.complex_type
        self.flag_at_first = bool(parameter.requires_grad)
        self.base = self.flag_at_first
        self.claims: list[Claim] = []

    @property
    def can_train(self) -> bool:
        """Whether an optimizer may ever move it: no statistic, no integer."""
        return self.floating and not self.statistic

    @property
    def design(self) -> bool:
        """Whether the model made it trainable."""
        return self.flag_at_first and self.can_train

    @property
    def trains(self) -> bool:
        """Whether it may move now."""
        return bool(self.parameter.requires_grad) and not self.claims and self.can_train

    def claim(self, claim: Claim) -> None:
        """Let a claim stand."""
        if not self.claims:
            self.base = bool(self.parameter.requires_grad)
        self.claims.append(claim)
        self.parameter.requires_grad = False

    def lift(self, claim: Claim) -> None:
        """Take one claim away."""
        if claim in self.claims:
            self.claims.remove(claim)
            if not self.claims:
                self.parameter.requires_grad = self.base

    def release(self) -> None:
        """Take all claims away and turn the flag on."""
        self.claims = []
        self.base = True
        self.parameter.requires_grad = True

    def restore(self, base: bool, claims: Iterable[Claim]) -> None:
        """Go back behind a `release`; claims undone meanwhile stay undone, later ones stand."""
        missing = [c for c in claims if not c.undone and c not in self.claims]
        self.claims = missing + self.claims
        self.base = base
        self.parameter.requires_grad = base and not self.claims


def see(net: nn.Cell) -> dict[int, Record]:
    """Return the record of every parameter by its id, in network order; made at first sight.

    A record lies in `__dict__` of each cell that owns the parameter, so that a deep copy of a network takes
    it along, and of the parameter, so that another network with the same weight finds it.
    """
    owners: dict[int, list[tuple[nn.Cell, str]]] = {}
    records: dict[int, Record] = {}
    for cell in every_cell(net):
        for record in cell.__dict__.get(_KEY, ()):
            records.setdefault(id(record.parameter), record)
        for name, parameter in cell.__dict__["_params"].items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((cell, name))
    return {key: records.get(key) or _make(places) for key, places in owners.items()}


def _make(places: list[tuple[nn.Cell, str]]) -> Record:
    cell, name = places[0]
    parameter = cell.__dict__["_params"][name]
    record = parameter.__dict__.get(_KEY)
    if record is None:
        statistic = any(name in statistic_names(cell) for cell, name in places)
        record = parameter.__dict__[_KEY] = Record(parameter, statistic=statistic)
    for cell, _ in places:
        cell.__dict__.setdefault(_KEY, []).append(record)
    return record


def statistic_names(cell: nn.Cell) -> frozenset[str]:
    """Name the attributes in which a cell keeps running statistics; empty for a cell that keeps none."""
    own = cell.__dict__["_params"].keys() | (cell.__dict__.get("_buffers") or {}).keys()
    for pair in _STATISTICS:
        if pair <= own:
            return pair | _COUNTERS
    return frozenset()
