"""The network of a step: a Cell that maps the step's inputs to the scalar loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mindspore import Tensor, nn

from msgrad.errors import ArgumentError, ArgumentTypeError

_NO_LABEL = (
    "step got one input, and its loss_fn takes a label: call step(x, label), and give "
    "ms.Model(step) no loss_fn"
)


class NetworkWithLoss(nn.Cell):
    """A network called with all inputs but the last, and a loss of its output and the last.

    `nn.WithLossCell` takes two inputs only. The child is named as it is there.
    """

    def __init__(self, network: nn.Cell, loss_fn: Callable[..., Tensor]) -> None:
        super().__init__(auto_prefix=False)
        self._backbone = network
        self._loss_fn = loss_fn
        self._get_attr_from_cell(network)

    def construct(self, *inputs: Tensor) -> Tensor:
        if len(inputs) < 2:
            # a builtin error: a graph knows no others
            raise ValueError(_NO_LABEL)
        return self._loss_fn(self._backbone(*inputs[:-1]), inputs[-1])


class FunctionNetwork(nn.Cell):
    """A function of the inputs that returns the loss, and the Cell that holds its parameters."""

    def __init__(self, function: Callable[..., Tensor], net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net
        self.function = function
        self._get_attr_from_cell(net)

    def construct(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def check_inputs(network: nn.Cell, inputs: Sequence[object]) -> None:
    """Refuse a call of a step with too few inputs.

    In PYNATIVE_MODE an error amid a gradient leaves MindSpore unable to compute others.

    Raises:
        ArgumentError: There are none, or only one where a label is needed.
    """
    if not inputs:
        raise ArgumentError("step got no inputs; call it with a batch, as step(x, y)")
    if len(inputs) < 2 and isinstance(network, NetworkWithLoss):
        raise ArgumentError(_NO_LABEL)


def loss_network(
    network: nn.Cell | Callable[..., Tensor],
    loss_fn: Callable[..., Tensor] | None,
    net: nn.Cell | None,
) -> nn.Cell:
    """Return one Cell that gives the loss, from any of the three ways to say it.

    Raises:
        ArgumentTypeError: One of the three is of a wrong type.
        ArgumentError: They do not go together.
    """
    if isinstance(network, nn.Cell):
        if net is not None:
            raise ArgumentError(
                "net= goes with a function as network; the given network is a Cell: leave net out"
            )
        if loss_fn is None:
            return network
        if isinstance(loss_fn, type):
            raise ArgumentTypeError(
                f"loss_fn {loss_fn.__name__} is a class; give an instance: {loss_fn.__name__}()"
            )
        if not callable(loss_fn):
            raise ArgumentTypeError(
                f"loss_fn {loss_fn!r} cannot be called; give a Cell or function (output, label)"
            )
        return NetworkWithLoss(network, loss_fn)
    if not callable(network):
        raise ArgumentTypeError(
            f"network {network!r} is neither a Cell nor a function; give one of the two"
        )
    if loss_fn is not None:
        raise ArgumentError(
            "loss_fn= goes with a Cell as network; a function returns the loss itself"
        )
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(
            f"net {net!r} is no Cell; with a function give net= the Cell that holds its parameters"
        )
    return FunctionNetwork(network, net)


def check_arguments(optimizer: object, train_cell: object, clip_norm: object) -> None:
    """Refuse what cannot be used, before anything is built.

    Raises:
        ArgumentTypeError: An argument has a wrong type.
        ArgumentError: `clip_norm` is not above 0 and finite.
    """
    if isinstance(optimizer, nn.Cell) and not hasattr(optimizer, "parameters"):
        raise ArgumentTypeError(
            f"optimizer is a {type(optimizer).__name__}, no optimizer; the order is "
            "TrainStep(network, optimizer, loss_fn)"
        )
    if isinstance(optimizer, nn.Cell):
        name = type(optimizer).__name__
        raise ArgumentTypeError(
            f"optimizer is an instance of {name}, whose parameters are fixed; "
            f"give a callable that makes one for each stage: lambda p: {name}(p, ...)"
        )
    if not callable(optimizer):
        raise ArgumentTypeError(
            f"optimizer {optimizer!r} cannot be called; give a function (parameters) -> optimizer"
        )
    if train_cell is not None and (isinstance(train_cell, nn.Cell) or not callable(train_cell)):
        raise ArgumentTypeError(
            f"train_cell {type(train_cell).__name__} is no class or function; "
            "give one that takes (network, optimizer) and returns a Cell"
        )
    if clip_norm is None:
        return
    if isinstance(clip_norm, bool) or not isinstance(clip_norm, (int, float)):
        raise ArgumentTypeError(
            f"clip_norm {clip_norm!r} is no number; give the largest norm, such as 1.0"
        )
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ArgumentError(
            f"clip_norm {clip_norm!r} is not above 0 and finite; give the largest norm, such as 1.0"
        )
