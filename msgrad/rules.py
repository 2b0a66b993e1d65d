"""Ready-made rules for `update_weights` and `WeightUpdates`."""

from __future__ import annotations

from mindspore import Tensor

from msgrad._rules import Rule


def multiply(factor: float) -> Rule:
    """Make a rule that multiplies the weight.

    Args:
        factor: The number to multiply by.

    Returns:
        A function of a weight.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones")
        >>> mg.update_weights(net, {"weight": mg.rules.multiply(0.9)})
        ['weight']
    """

    def rule(w: Tensor) -> Tensor:
        return w * factor

    return rule
