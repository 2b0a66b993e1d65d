"""The norms of gradients as they come to an optimizer, noted inside the compiled step."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.ops import composite

from msgrad._cells import every_cell, forget_compiled
from msgrad._optimizer import OptimizerWrapper
from msgrad._step import TrainStep
from msgrad._subject import optimizers_in
from msgrad._weights import copy_of

_note = composite.MultitypeFuncGraph("note")


@_note.register("Tensor", "Tensor")
def _note_tensor(buffer: Parameter, gradient: Tensor) -> Tensor:
    # one pass over the gradient; above 1e19 the square of float32 is infinite
    square = 2.0 * ops.L2Loss()(ops.cast(gradient, mstype.float32))
    return ops.assign(buffer, ops.sqrt(square).reshape((1,)))


class NotingOptimizer(OptimizerWrapper):
    """An optimizer that notes the norm of each gradient before it uses them."""

    def __init__(self, optimizer: nn.Cell) -> None:
        super().__init__(optimizer)
        # beside the parameters: nothing that lists or saves the step's may see them
        own = self.__dict__
        own["noted"] = {id(p): _buffer(p) for p in optimizer.parameters}
        own["_buffers_of_norms"] = ParameterTuple(self.noted.values())
        self.map_each = composite.HyperMap()

    def construct(self, grads: tuple[Tensor, ...]) -> Any:
        noted = self.map_each(_note, self._buffers_of_norms, grads)
        return self.optimizer(ops.depend(grads, noted))


def _buffer(weight: Parameter) -> Parameter:
    blank = Tensor(np.full(1, np.nan, np.float32))
    return Parameter(blank, name=f"msgrad.norm.{weight.name}", requires_grad=False)


class GradientNorms:
    """Puts noting optimizers into a step, and takes them out again."""

    def __init__(self) -> None:
        # by the id of the optimizer, which the noting one keeps alive
        self._noting: dict[int, NotingOptimizer] = {}
        self._places: list[tuple[nn.Cell, str, nn.Cell]] = []
        self._current: list[NotingOptimizer] = []

    def attach(self, step: nn.Cell) -> None:
        """Note from now on; the step is compiled once more if it was compiled already."""
        root = step.inner if isinstance(step, TrainStep) else step
        found = optimizers_in(root)
        self._current = [o if isinstance(o, NotingOptimizer) else self._noting_of(o) for o in found]
        instead = {id(o): noting for o, noting in zip(found, self._current, strict=True)}
        places = [
            (part, key, cell)
            for part in every_cell(root)
            for key, cell in part._cells.items()
            if id(cell) in instead and instead[id(cell)] is not cell
        ]
        for part, key, cell in places:
            part._cells[key] = instead[id(cell)]
        if places and any(cell.compile_cache for cell in every_cell(root)):
            forget_compiled(root)
        self._places += places

    def _noting_of(self, optimizer: nn.Cell) -> NotingOptimizer:
        if id(optimizer) not in self._noting:
            self._noting[id(optimizer)] = NotingOptimizer(optimizer)
        return self._noting[id(optimizer)]

    def detach(self) -> None:
        """Put the optimizers back; what is compiled goes on noting, which changes nothing."""
        for part, key, cell in self._places:
            part._cells[key] = cell
        self._places, self._current = [], []

    def norms(self) -> dict[int, float]:
        """Return the norms at the last step, by the ids of the weights; NaN before the first."""
        return {
            key: float(copy_of(buffer)[0])
            for noting in self._current
            for key, buffer in noting.noted.items()
        }
