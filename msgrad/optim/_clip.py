"""What happens to gradients on their way to the optimizer: clipped, gathered over several calls."""

from __future__ import annotations

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
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
    """Keep each element in [-clip_value, clip_value], then the norm over all at most `clip_norm`.

    What a `HoldOptimizer` holds does not move, and its gradient does not count.
    """

    def __init__(
        self, optimizer: nn.Cell, clip_norm: float | None, clip_value: float | None = None
    ) -> None:
        super().__init__(optimizer)
        self.clip_norm, self.clip_value = clip_norm, clip_value
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
        if self.clip_value is not None:
            grads = ops.clip_by_value(grads, -self.clip_value, self.clip_value)
        if self.clip_norm is None:
            return self.optimizer(grads)
        # a step that holds nothing takes no longer
        if self.holds and ops.stack(self._flags).sum() > 0:
            grads = self.map_each(_without, self._masks, grads)
        return self.optimizer(ops.clip_by_global_norm(grads, self.clip_norm))


# What the names of gathered gradients begin with.
GATHERED = "gathered"
_each = composite.HyperMap()


class AccumulatingOptimizer(OptimizerWrapper):
    """Call the optimizer once for so many calls, with the mean of their gradients."""

    def __init__(self, optimizer: nn.Cell, count: int) -> None:
        super().__init__(optimizer)
        self.count = count
        self.sums = optimizer.parameters.clone(prefix=GATHERED, init="zeros")
        self.calls = Parameter(Tensor(0, mstype.int32), f"{GATHERED}_calls", requires_grad=False)
        for value in self.sums:
            value.requires_grad = False

    def construct(self, grads: tuple[Tensor, ...]) -> Tensor:
        added = _each(ops.assign_add, self.sums, grads)
        calls = ops.depend(ops.assign_add(self.calls, 1), added)
        if calls % self.count == 0:
            means = _each(ops.partial(_share, self.count), self.sums)
            done = ops.depend(means, self.optimizer(means))
            calls = ops.depend(calls, _each(ops.partial(_clear), self.sums, done))
        return calls >= 0


def _share(count: int, value: Tensor) -> Tensor:
    return value / count


def _clear(value: Parameter, done: Tensor) -> Tensor:
    return ops.assign(value, ops.zeros_like(done))
