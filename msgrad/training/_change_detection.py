"""Noticing that the flags, stops or behaviour of a network changed, in microseconds."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from operator import attrgetter, is_not

from mindspore import nn

from msgrad.freezing import apply_behaviour, asked_to_train, claims_version, records_of
from msgrad.network import every_cell
from msgrad.wrappers import StopGradient, stops_of, wrap_changes

_flag = attrgetter("requires_grad")
_training = attrgetter("training")
_batch = attrgetter("use_batch_statistics")


class ChangeDetector:
    """Looks at one network; what it compares lies in flat lists, made when something changed."""

    def __init__(self, net: nn.Cell) -> None:
        self._net = net
        self._last: Hashable = None
        # each structure seen, with what it is made of, so that no id is used again
        self._structures: dict[tuple[int, ...], tuple[int, tuple[object, ...]]] = {}
        self._list()

    def _list(self) -> None:
        self.records = list(records_of(self._net).values())
        # the flag is read from `param_info`, at a quarter of what the property costs
        self._infos = [r.parameter.param_info for r in self.records]
        self._cells = every_cell(self._net)
        self._norms = [c for c in self._cells if "use_batch_statistics" in c.__dict__]
        dicts = [(c.__dict__["_params"], c.__dict__["_cells"]) for c in self._cells]
        self._places = list(chain.from_iterable(dicts))
        self._things = self._standing()
        # one StopGradient is like another; a ScaleGradient has a factor of its own in the graph
        key = tuple(id(t) for t in self._things if not isinstance(t, StopGradient))
        known = self._structures.setdefault(key, (len(self._structures), self._things))
        self._structure = known[0]

    def _standing(self) -> tuple[object, ...]:
        """Return every parameter and child cell where it stands."""
        return tuple(chain.from_iterable(map(dict.values, self._places)))

    def _replaced(self) -> bool:
        now = self._standing()
        return len(now) != len(self._things) or any(map(is_not, now, self._things))

    def _now(self) -> tuple[Hashable, ...]:
        return (
            claims_version(),
            wrap_changes(),
            tuple(map(_flag, self._infos)),
            tuple(map(_training, self._cells)),
            tuple(map(_batch, self._norms)),
        )

    def changed(self) -> bool:
        """Say whether anything is different since the last `accept`."""
        return self._now() != self._last or self._replaced()

    def refresh(self) -> None:
        """Hold or release what the claims ask for, and list the network anew."""
        apply_behaviour(self._net)
        self._list()

    def accept(self) -> None:
        """Take the present state as known."""
        self._last = self._now()

    def stops(self) -> Hashable:
        """Return what cuts or changes a gradient on its way, as a key."""
        return stops_of(self._net)

    def gradient_routes(self) -> Hashable:
        """Return all that decides where a gradient can get to, as a key.

        A network may have a branch that it takes in training only. What `set_train` asked for
        counts, which freezing does not change.
        """
        return self._structure, self.stops(), tuple(map(asked_to_train, self._cells))

    def behaviour(self) -> Hashable:
        """Return what the cells do beside their weights, as a key."""
        return self._structure, *self._now()[3:]
