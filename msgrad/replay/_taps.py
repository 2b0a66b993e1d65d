"""Taps: wrappers around frozen cells that note what a cell gives, or give what was noted."""

from __future__ import annotations

from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.network import hidden
from msgrad.wrappers import CellWrapper

CALL, FILL, TRACE, REPLAY = range(4)


class Recorder(CellWrapper):
    """Notes what goes through a cell; for eager passes."""

    passing = True

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.__dict__["calls"] = []

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell, and note the arguments and the result."""
        out = self.cell(*args, **kwargs)
        self.calls.append((args, kwargs, out))
        return out


class Tap(CellWrapper):
    """Stands around a frozen cell whose one call gives one tensor.

    What it does is read when a graph is compiled; each graph of a replay is compiled with the taps
    in one state. The buffer has the rows of one batch, so there is one for each size of batch.
    """

    passing = True

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(cell)
        self.__dict__.update(doing=CALL, buffer=None, needed=True, sinks=())

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell, fill the buffer, or give the buffer."""
        if self.doing == REPLAY:
            return self.buffer
        if self.doing == TRACE:
            return self._traced(args, kwargs)
        out = self.cell(*args, **kwargs)
        if self.doing == FILL and self.needed:
            out = ops.depend(out, ops.assign(self.buffer, out))
        return out

    def _traced(self, args: Any, kwargs: Any) -> Tensor:
        """Give the buffer, and lead every tensor that comes in to a sink, for all to see."""
        given = list(args) + list(kwargs.values())
        out = self.buffer
        for i in range(len(self.sinks)):
            out = ops.depend(out, ops.assign(self.sinks[i], self._sum(given[i])))
        return out

    def _sum(self, value: Any) -> Tensor:
        total = Tensor(0.0, mstype.float32)
        if isinstance(value, Tensor):
            total = ops.cast(value, mstype.float32).sum()
        elif isinstance(value, (tuple, list)):
            for item in value:
                total = total + self._sum(item)
        return total

    def set_buffer(self, buffer: Parameter) -> None:
        """Take another buffer, for batches of another size."""
        self.__dict__["buffer"] = buffer

    def make_sinks(self, count: int) -> None:
        """Make a sink for each argument of the cell."""
        self.__dict__["sinks"] = tuple(hidden("sink", 0.0, mstype.float32) for _ in range(count))

    def do(self, what: int) -> None:
        """Go to another state."""
        self.__dict__["doing"] = what
