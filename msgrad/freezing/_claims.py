"""The record that a network keeps of each of its parameters: design, claims, the flag they give.

The flag of a parameter is `base` while no claim stands and False while one does.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Collection, Iterable
from itertools import count
from typing import Any

from mindspore import Parameter, nn
from mindspore import dtype as mstype

from msgrad.network import collector_paused, every_cell

_KEY = "_msgrad_records"
BY_FLAG = "requires_grad = False"
_STATISTICS = (
    frozenset(("moving_mean", "moving_variance")),
    frozenset(("running_mean", "running_var")),
)
_COUNTERS = frozenset(("num_batches_tracked",))
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_ticks = count(1)
_version = [0]


def claims_version() -> int:
    """Return a number that grows with every change of a claim or of a held behaviour."""
    return _version[0]


def claims_changed() -> None:
    """Make every step look at its network again."""
    _version[0] = next(_ticks)


class Claim:
    """One freeze: what it was asked for, and what it wants held beside the weights."""

    def __init__(
        self,
        patterns: str,
        *,
        statistics: bool = True,
        dropout: bool = True,
        of_stage: bool = False,
    ) -> None:
        self.patterns = patterns
        # whether a schedule makes it, which makes it anew where its stage comes again
        self.of_stage = of_stage
        self.statistics = statistics
        self.dropout = dropout
        self.undone = False
        # whether it comes from a file, so that nobody holds the handle to undo it
        self.loaded = False


class Record:
    """What is known of one parameter, whichever network is asked; it keeps no weight alive."""

    def __init__(self, parameter: Parameter, *, statistic: bool) -> None:
        self._parameter = weakref.ref(parameter)
        self.statistic = statistic
        self.floating = parameter.dtype in (*mstype.float_type, *mstype.complex_type)
        self.flag_at_first = bool(parameter.requires_grad)
        self.base = self.flag_at_first
        self.claims: list[Claim] = []
        # whether a step or an update had it among what may move, however it is frozen now
        self.has_moved = False
        # what held it earlier in this run, in words
        self.past: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        twin = copy.copy(self)
        memo[id(self)] = twin
        twin.claims = copy.deepcopy(self.claims, memo)
        twin.past = set(self.past)
        original = self._parameter()
        if original is not None:
            # a weak reference is copied as it is, and would stay with the original
            parameter = copy.deepcopy(original, memo)
            twin._parameter = weakref.ref(parameter)
            parameter.__dict__[_KEY] = twin
        return twin

    @property
    def parameter(self) -> Parameter:
        """The parameter, which the network that was asked keeps alive."""
        parameter = self._parameter()
        assert parameter is not None
        return parameter

    @property
    def can_train(self) -> bool:
        """Whether an optimizer may ever move it: no statistic, no integer."""
        return self.floating and not self.statistic

    @property
    def design(self) -> bool:
        """Whether the model made it trainable."""
        return self.flag_at_first and self.can_train

    @property
    def counts(self) -> bool:
        """Whether it has a say in what its layer does: what the model never trained has none."""
        return self.can_train and (self.flag_at_first or bool(self.claims))

    @property
    def trains(self) -> bool:
        """Whether it may move now."""
        return bool(self.parameter.requires_grad) and not self.claims and self.can_train

    @property
    def own_flag(self) -> bool:
        """The flag that it has, or would have without claims."""
        return self.base if self.claims else bool(self.parameter.requires_grad)

    @property
    def held_by_flag(self) -> bool:
        """Whether nothing but its flag keeps it from training."""
        return self.can_train and not self.claims and not self.parameter.requires_grad

    def claim(self, claim: Claim) -> None:
        """Let a claim stand."""
        self.base = self.own_flag
        self.claims.append(claim)
        self.parameter.requires_grad = False

    def lift(self, claim: Claim) -> None:
        """Take one claim away."""
        if claim in self.claims:
            self.past.add(claim.patterns)
            self.claims.remove(claim)
            if not self.claims:
                self._set_flag(self.base)

    def release(self, *, flag: bool) -> None:
        """Take all claims away and set the flag."""
        self.past.update(claim.patterns for claim in self.claims)
        self.claims = []
        self.base = flag
        self._set_flag(flag)

    def restore(self, base: bool, claims: Iterable[Claim]) -> None:
        """Go back behind a `release`; claims undone meanwhile stay undone, later ones stand."""
        missing = [c for c in claims if not c.undone and c not in self.claims]
        self.claims = missing + self.claims
        self.base = base
        self._set_flag(base and not self.claims)

    def _set_flag(self, flag: bool) -> None:
        parameter = self._parameter()
        # an undo may come when the network has another parameter in its place
        if parameter is not None:
            parameter.requires_grad = flag


@collector_paused()
def records_of(net: nn.Cell) -> dict[int, Record]:
    """Return the record of every parameter by its id, in network order; made at first sight.

    A record lies with its parameter, so that another network with the same weight finds it, and
    with each cell that owns the parameter, since a deep copy takes along what lies with a cell, but
    not what lies with a parameter.
    """
    places: dict[int, list[tuple[nn.Cell, str, Parameter]]] = {}
    for cell in every_cell(net):
        for name, parameter in cell.__dict__["_params"].items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((cell, name, parameter))
    found = {key: _record(owners) for key, owners in places.items()}
    for key, owners in places.items():
        for cell, name, _ in owners:
            cell.__dict__.setdefault(_KEY, {})[name] = found[key]
    return found


def _record(places: list[tuple[nn.Cell, str, Parameter]]) -> Record:
    parameter = places[0][2]
    record = parameter.__dict__.get(_KEY)
    if record is None:
        statistic = any(name in statistic_names(cell) for cell, name, _ in places)
        record = parameter.__dict__[_KEY] = Record(parameter, statistic=statistic)
    return record


def lift_loaded(records: Iterable[Record], texts: Collection[str]) -> None:
    """Take away claims from a file that whoever made them is about to make again."""
    for record in records:
        for claim in [c for c in record.claims if c.loaded and c.patterns in texts]:
            record.lift(claim)


def statistic_names(cell: nn.Cell) -> frozenset[str]:
    """Name the attributes in which a cell keeps running statistics; empty where it keeps none."""
    own = cell.__dict__["_params"].keys() | (cell.__dict__.get("_buffers") or {}).keys()
    for pair in _STATISTICS:
        if pair <= own:
            return pair | _COUNTERS
    return frozenset()


def is_norm(cell: nn.Cell) -> bool:
    """Whether a cell normalises with statistics that it keeps, or would keep if it were told to."""
    if statistic_names(cell) or isinstance(cell, INSTANCE_NORMS):
        return True
    return getattr(cell, "track_running_stats", None) is False
