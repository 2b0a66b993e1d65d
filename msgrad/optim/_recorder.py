"""Optimizers that note their gradients, put into a step and taken out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.network import copy_of, every_cell
from msgrad.optim._hold import blank
from msgrad.optim._wrapper import OptimizerWrapper


class GradientRecorder(OptimizerWrapper):
    """An optimizer that notes the norm of each gradient before it uses them.

    Args:
        optimizer: The optimizer.
        largest: Also note the largest element, so that a norm whose square vanishes is seen.
    """

    def __init__(self, optimizer: nn.Cell, largest: bool = False) -> None:
        super().__init__(optimizer)
        self.largest = largest
        # beside the parameters: nothing that lists or saves the step's may see them
        own, size = self.__dict__, 1 + largest
        own["noted"] = {
            id(p): blank((size,), mstype.float32, f"msgrad.norm.{p.name}")
            for p in optimizer.parameters
        }
        own["_buffers"] = ParameterTuple(self.noted.values())
        own["_calls"] = blank((1,), mstype.float32, "msgrad.calls")
        self.map_each = ops.HyperMap()

    def construct(self, grads: tuple[Tensor, ...]) -> Any:
        noted = self.map_each(self.note, self._buffers, grads)
        counted = ops.assign_add(self._calls, Tensor([1.0], mstype.float32))
        return self.optimizer(ops.depend(grads, (noted, counted)))

    def note(self, buffer: Parameter, gradient: Tensor) -> Tensor:
        """Write the size of one gradient into its buffer."""
        values = ops.cast(gradient, mstype.float32)
        # one pass over the gradient; above 1e19 the square of float32 is infinite
        norm = ops.sqrt(2.0 * ops.L2Loss()(values)).reshape((1,))
        if self.largest:
            norm = ops.cat((ops.abs(values).max().reshape((1,)), norm))
        return ops.assign(buffer, norm)

    @property
    def called(self) -> bool:
        """Whether gradients came."""
        return bool(copy_of(self._calls).any())

    def norms(self) -> dict[int, float]:
        """Return the norms at the last call, by the ids of the weights; none before the first."""
        if not self.called:
            return {}
        return {key: float(copy_of(buffer).max()) for key, buffer in self.noted.items()}


def put_instead(
    root: nn.Cell, instead: Mapping[int, nn.Cell]
) -> list[tuple[nn.Cell, str, nn.Cell]]:
    """Put cells in the place of others, by their ids, and return what stood where."""
    stood = [
        (part, key, cell)
        for part in every_cell(root)
        for key, cell in part._cells.items()
        if instead.get(id(cell), cell) is not cell
    ]
    for part, key, cell in stood:
        part._cells[key] = instead[id(cell)]
    return stood


def put_back(stood: Iterable[tuple[nn.Cell, str, nn.Cell]]) -> None:
    """Put the cells back that stood there before."""
    for part, key, cell in stood:
        part._cells[key] = cell
