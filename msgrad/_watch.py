"""Noticing that the flags, stops or behaviour of a network changed, in microseconds."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

from mindspore import nn

from msgrad import _claims, _wrap
from msgrad._behaviour import apply_behaviour, asked_to_train
from msgrad._cells import every_cell

_flag = attrgetter("requires_grad")
_training = attrgetter("training")
_batch = attrgetter("use_batch_statistics")


class Watch:
    """Looks at one network; what it compares lies in flat lists made when the structure changed."""

    def __init__(self, net: nn.Cell) -> None:
        self._net = net
        self._last: Hashable = None
        self._list()

    def _list(self) -> None:
        self.records = list(_claims.see(self._net).values())
        # the flag is read from `param_info`, at a quarter of what the property costs
        self._infos = [r.parameter.param_info for r in self.records]
        self._cells = every_cell(self._net)
        self._norms = [c for c in self._cells if "use_batch_statistics" in c.__dict__]

    def _now(self) -> tuple[Hashable, ...]:
        return (
            _claims.version(),
            _wrap.changes(),
            tuple(map(_flag, self._infos)),
            tuple(map(_training, self._cells)),
            tuple(map(_batch, self._norms)),
        )

    def changed(self) -> bool:
        """Say whether anything is different since the last `know`."""
        return self._now() != self._last

    def settle(self) -> None:
        """Hold or release what the claims ask for, and list the network anew."""
        apply_behaviour(self._net)
        self._list()

    def know(self) -> None:
        """Take the present state as known."""
        self._last = self._now()

    def stops(self) -> Hashable:
        """Return what cuts or changes a gradient on its way, as a key."""
        return _wrap.stops_of(self._net)

    def routes(self) -> Hashable:
        """Return all that decides where a gradient can get to, as a key.

        A network may have a branch that it takes in training only. What `set_train` asked for
        counts, which freezing does not change.
        """
        return self.stops(), tuple(map(asked_to_train, self._cells))

    def behaviour(self) -> Hashable:
        """Return what the cells do beside their weights, as a key."""
        return self._now()[3:]
