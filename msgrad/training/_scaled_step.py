"""A train cell with a loss scale, for every device: an update that is not finite is left out."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, amp, nn, ops


class ScaledStep(nn.TrainOneStepCell):
    """Multiply the loss by a scale, and divide its gradients by it.

    MindSpore's own `TrainOneStepWithLossScaleCell` has no CPU kernel; its scalers have.
    """

    def __init__(self, network: nn.Cell, optimizer: nn.Cell, loss_scale: float | str) -> None:
        super().__init__(network, optimizer)
        self.scaler: Any = (
            amp.DynamicLossScaler(2.0**16, 2, 1000)
            if isinstance(loss_scale, str)
            else amp.StaticLossScaler(loss_scale)
        )

    def construct(self, *inputs: Tensor) -> Tensor:
        loss = self.network(*inputs)
        sens = self.scaler.scale(ops.ones_like(loss))
        grads = self.grad(self.network, self.weights)(*inputs, sens)
        grads = self.scaler.unscale(self.grad_reducer(grads))
        finite = amp.all_finite(grads)
        loss = ops.depend(loss, self.scaler.adjust(finite))
        if finite:
            loss = ops.depend(loss, self.optimizer(grads))
        return loss
