"""The rows of a frozen part: computed for a batch, or put where the graph reads them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad.network import bits, copy_of, seeds_kept, write
from msgrad.replay._part import FrozenPart, adapting, new_buffer
from msgrad.replay._samples import reordered, rows_of
from msgrad.replay._taps import CALL, FILL, REPLAY

_ENDS = 16


class FrozenRows:
    """Fills the taps of a frozen part, by its network or from what was kept.

    Args:
        part: The taps, whose buffers hold a batch of the first size.
        rows: That size.
    """

    def __init__(self, part: FrozenPart, rows: int) -> None:
        self._part = part
        self._filler = _Filler(part.net)
        # what is frozen later is no part of it
        self._weights = part.weights()
        self._buffers = {rows: [tap.buffer for tap in part.taps.values()]}

    def compute(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        """Let the frozen part compute a batch; the taps hold it from now on."""
        self._use(rows_of(inputs))
        with _kept(adapting(self._part.net)), seeds_kept(), self._doing(FILL):
            self._filler(*inputs)
        return [copy_of(tap.buffer) for tap in self._part.needed]

    def put(self, values: Sequence[np.ndarray]) -> None:
        """Let the taps hold these values, one array per needed tap."""
        self._use(len(values[0]))
        for tap, value in zip(self._part.needed, values, strict=True):
            write(tap.buffer, value)

    @contextmanager
    def given(self, cell: nn.Cell) -> Iterator[None]:
        """Let the taps give what they hold for a block, in which a cell is called.

        It is compiled under a phase of its own, so that the same cell called beside a replay, to
        evaluate or to audit, computes.
        """
        phase = cell.phase
        cell.phase = f"{phase}.msgrad.replay"
        try:
            with self._doing(REPLAY):
                yield
        finally:
            cell.phase = phase

    @contextmanager
    def _doing(self, what: int) -> Iterator[None]:
        self._part.do(what)
        try:
            yield
        finally:
            self._part.do(CALL)

    def _use(self, rows: int) -> None:
        """Let the taps read buffers of this many rows; a graph keeps those it is compiled with."""
        taps = list(self._part.taps.values())
        if rows not in self._buffers:
            self._buffers[rows] = [
                new_buffer((rows, *tap.buffer.shape[1:]), tap.buffer.dtype) for tap in taps
            ]
        for tap, buffer in zip(taps, self._buffers[rows], strict=True):
            tap.set_buffer(buffer)

    def mixed(self, first: Sequence[Tensor]) -> str | None:
        """Compute a batch again in another order and with other mates.

        Returns:
            The path of a cell whose rows have other bits then, None where there is none.
        """
        rows = rows_of(first)
        before = self.compute(first)
        order = np.random.default_rng(0).permutation(rows)
        order[rows // 2 :] = order[0]
        after = self.compute([reordered(value, order, rows) for value in first])
        paths = [path for path, tap in self._part.taps.items() if tap.needed]
        for path, old, new in zip(paths, before, after, strict=True):
            if not np.array_equal(bits(old[order]), bits(new)):
                return path
        return None

    def checksum(self) -> int:
        """Return a number that differs where a bit of the frozen weights does."""
        total = 0
        for weight in self._weights:
            total = zlib.crc32(copy_of(weight).tobytes(), total)
        return total

    def glance(self) -> int:
        """Return a number that differs where both ends of a frozen weight do, for each call.

        On the CPU NumPy reads them in place; from a device all would have to be copied: 0.
        """
        total = 0
        if ms.get_context("device_target") == "CPU":
            for weight in self._weights:
                if weight.dtype != ms.bfloat16:
                    flat = weight.asnumpy().reshape(-1)
                    total = zlib.crc32(flat[-_ENDS:].tobytes(), total)
                    total = zlib.crc32(flat[:_ENDS].tobytes(), total)
        return total


@contextmanager
def _kept(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Put values back that a pass through the whole network moves."""
    before = [(parameter, copy_of(parameter)) for parameter in parameters]
    try:
        yield
    finally:
        for parameter, values in before:
            write(parameter, values)


class _Filler(nn.Cell):
    """Runs a network for what its taps note."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs: Any) -> Tensor:
        return ms.ops.depend(Tensor(0.0, ms.float32), self.network(*inputs))
