"""Clipping by the norm over all gradients of what may move."""

from __future__ import annotations

from mindspore import ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.ops import composite

from msgrad.network import every_cell
from msgrad.optim._hold import HoldOptimizer, blank
from msgrad.optim._wrapper import OptimizerWrapper

_without = composite.MultitypeFuncGraph("without")


@_without.register("Tensor", "Tensor")
def _without_held(mask: Tensor, gradient: Tensor) -> Tensor:
    # not a product with the mask: a gradient that is not finite counts as little
    return ops.select(ops.broadcast_to(mask, gradient.shape), ops.zeros_like(gradient), gradient)


class ClippedOptimizer(OptimizerWrapper):
    """Scale the gradients so that the norm over all of them is at most `clip_norm`.

    What a `HoldOptimizer` holds does not move, and its gradient does not count.
    """

    def __init__(self, optimizer: nn.Cell, clip_norm: float) -> None:
        super().__init__(optimizer)
        self.clip_norm = clip_norm
        holds = [cell for cell in every_cell(optimizer) if isinstance(cell, HoldOptimizer)]
        masks = {key: mask for hold in holds for key, mask in hold.masks_by_weight.items()}
        never = blank((), mstype.bool_, "hold_mask.never")
        # beside the parameters that MindSpore lists and saves: those of the holds are listed there
        own = self.__dict__
        own["_flags"] = ParameterTuple([flag for hold in holds for flag in hold.flags])
        own["_masks"] = ParameterTuple([masks.get(id(p), never) for p in optimizer.parameters])
        self.holds = bool(masks)
        self.map_each = composite.HyperMap()

    def construct(self, grads: tuple[Tensor, ...]) -> object:
        # a step that holds nothing takes no longer
        if self.holds and ops.stack(self._flags).sum() > 0:
            grads = self.map_each(_without, self._masks, grads)
        return self.optimizer(ops.clip_by_global_norm(grads, self.clip_norm))
