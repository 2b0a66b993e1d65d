"""The network of a step: a Cell that maps the step's inputs to the scalar loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import mindspore as ms
from mindspore import Tensor, nn, ops

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import called_by
from msgrad.optim import optimizers_in
from msgrad.training._scaled_step import ScaledStep
from msgrad.wrappers import CellWrapper

_SEVERAL = (
    "the network returns several values, and the gradient would be that of their sum; return the "
    "loss alone, or give TrainStep has_aux=True where the first of them is the loss"
)
_ALONE = (
    "has_aux=True asks for a tuple of the loss and more, and the network returns one value; return "
    "both, or leave has_aux out"
)


class NetworkWithLoss(nn.Cell):
    """A network called with all inputs but the labels, and a loss of its output and the labels.

    `nn.WithLossCell` takes two inputs only. The child is named as it is there.
    """

    def __init__(
        self, network: nn.Cell, loss_fn: Callable[..., Any], labels: int, has_aux: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self._backbone = network
        self._loss_fn = loss_fn
        self.labels = labels
        self.has_aux = has_aux
        self.refuses = True
        self.missing = (
            f"step got too few inputs: its loss_fn takes {labels} of them as "
            f"label{'s' * (labels > 1)}; call step(x, {', '.join(['label'] * labels)}), and give "
            "ms.Model(step) no loss_fn"
        )
        self._get_attr_from_cell(network)

    def construct(self, *inputs: Tensor) -> Any:
        if len(inputs) <= self.labels:
            # a builtin error: a graph knows no others
            raise ValueError(self.missing)
        given, labels = inputs[: -self.labels], inputs[-self.labels :]
        return checked_loss(
            self._loss_fn(self._backbone(*given), *labels), self.has_aux, self.refuses
        )


def check_train_cell(inner: nn.Cell, network: nn.Cell) -> None:
    """Refuse a train cell that cannot take a loss and more.

    Raises:
        ArgumentError: It multiplies the loss by a scale, which a tuple has not.
    """
    if returns_aux(network) and isinstance(inner, nn.TrainOneStepWithLossScaleCell):
        raise ArgumentError(
            f"train_cell {type(inner).__name__} takes a scalar loss, and has_aux=True gives it a "
            "tuple; leave has_aux out, or write a train cell that scales the first of the values"
        )


def returns_aux(network: nn.Cell) -> bool:
    """Whether a loss network returns the loss and more."""
    return _checks_itself(network) and bool(network.has_aux)


class FunctionNetwork(nn.Cell):
    """A function of the inputs that returns the loss, and the Cell that holds its parameters."""

    def __init__(
        self, function: Callable[..., Any], net: nn.Cell, has_aux: bool | None = None
    ) -> None:
        super().__init__(auto_prefix=False)
        self.net = net
        self.function = function
        self.has_aux = has_aux
        self.refuses = True
        self._get_attr_from_cell(net)

    def construct(self, *inputs: Tensor) -> Any:
        return checked_loss(self.function(*inputs), self.has_aux, self.refuses)


class CheckedLoss(CellWrapper):
    """A loss network that is refused where it returns something else than it should."""

    def __init__(self, cell: nn.Cell, has_aux: bool) -> None:
        super().__init__(cell)
        self.has_aux = has_aux
        self.refuses = True

    def construct(self, *inputs: Any) -> Any:
        return checked_loss(self.cell(*inputs), self.has_aux, self.refuses)


def checked_loss(out: Any, has_aux: bool | None, refuses: bool = True) -> Any:
    """Return the loss, or the loss and constants: what stands beside it has no gradient.

    What decides are kinds, which a graph knows when it is compiled, so that nothing has run yet.
    """
    if has_aux is None:
        return out
    several = isinstance(out, (tuple, list, dict))
    if not has_aux:
        if several and refuses:
            raise ValueError(_SEVERAL)
        return out
    if not several or isinstance(out, dict) or len(out) < 2:
        if refuses:
            raise ValueError(_ALONE)
        return out
    return (out[0], *constants(out[1:]))


def constants(values: Sequence[Any]) -> tuple[Any, ...]:
    """Cut the gradient of each value; of nested ones PYNATIVE_MODE would cut none at once."""
    found = ()
    for value in values:
        if isinstance(value, (tuple, list)):
            found = (*found, constants(value))
        elif isinstance(value, dict):
            # no method of a dict: a graph has none of them in a function that calls itself
            named = {}
            for key in value:
                named[key] = constants([value[key]])[0]
            found = (*found, named)
        else:
            found = (*found, ops.stop_gradient(value))
    return found


def check_inputs(network: nn.Cell, inputs: Sequence[object]) -> None:
    """Refuse a call of a step with too few inputs.

    In PYNATIVE_MODE an error amid a gradient leaves MindSpore unable to compute others.

    Raises:
        ArgumentError: There are none, or no more than there are labels.
    """
    if not inputs:
        raise ArgumentError("step got no inputs; call it with a batch, as step(x, y)")
    if isinstance(network, NetworkWithLoss) and len(inputs) <= network.labels:
        raise ArgumentError(network.missing)


def guarded(network: nn.Cell, mode: int | None = None) -> nn.Cell:
    """Return the network as a graph takes it, which refuses several values."""
    mode = ms.get_context("mode") if mode is None else mode
    if _checks_itself(network) or mode == ms.PYNATIVE_MODE:
        return network
    return CheckedLoss(network, False)


@contextmanager
def checking_in_python(network: nn.Cell, inner: nn.Cell) -> Iterator[None]:
    """Refuse several values in PYNATIVE_MODE too, where a guard would cost time in each step.

    They are refused where the gradient has ended and the optimizer begins: an error amid a gradient
    leaves MindSpore unable to compute others.
    """
    if ms.get_context("mode") == ms.GRAPH_MODE:
        yield
        return
    outs: list[object] = []
    checks = network if _checks_itself(network) else None
    has_aux = checks.has_aux if checks is not None else False

    def note(cell: nn.Cell, inputs: object, out: object) -> None:
        outs.append(out)

    def check(cell: nn.Cell, inputs: object) -> None:
        for out in outs:
            checked_loss(out, has_aux)

    hooks = [network.register_forward_hook(note)]
    hooks += [o.register_forward_pre_hook(check) for o in optimizers_in(inner)]
    if checks is not None:
        checks.refuses = False
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        if checks is not None:
            checks.refuses = True


def _checks_itself(
    network: nn.Cell,
) -> TypeGuard[NetworkWithLoss | FunctionNetwork | CheckedLoss]:
    return isinstance(network, (NetworkWithLoss, FunctionNetwork, CheckedLoss))


def raise_refusal(error: BaseException) -> None:
    """Raise in msgrad's words what was refused while a graph was compiled; nothing for all else.

    Raises:
        ArgumentError: The network returns no scalar loss.
    """
    for told in (_SEVERAL, _ALONE):
        if told in str(error):
            raise ArgumentError(told) from None


def loss_network(
    network: nn.Cell | Callable[..., Any],
    loss_fn: Callable[..., Any] | None,
    net: nn.Cell | None,
    *,
    labels: int | None = None,
    has_aux: bool = False,
) -> nn.Cell:
    """Return one Cell that gives the loss, from any of the three ways to say it.

    Raises:
        ArgumentTypeError: One of the three is of a wrong type.
        ArgumentError: They do not go together.
    """
    if labels is not None and loss_fn is None:
        raise ArgumentError("labels= goes with loss_fn=, which they are given to")
    if isinstance(network, nn.Cell):
        if net is not None:
            raise ArgumentError(
                "net= goes with a function as network; the given network is a Cell: leave net out"
            )
        _check_trains_nothing(network, network)
        if loss_fn is None:
            return CheckedLoss(network, True) if has_aux else network
        _check_loss_fn(loss_fn)
        return NetworkWithLoss(network, loss_fn, _labels(loss_fn, labels), has_aux)
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
    for cell in (net, *called_by(network)):
        if isinstance(cell, nn.Cell):
            _check_trains_nothing(cell, network)
    return FunctionNetwork(network, net, has_aux)


def _check_loss_fn(loss_fn: object) -> None:
    if isinstance(loss_fn, type):
        raise ArgumentTypeError(
            f"loss_fn {loss_fn.__name__} is a class; give an instance: {loss_fn.__name__}()"
        )
    if not callable(loss_fn):
        raise ArgumentTypeError(
            f"loss_fn {loss_fn!r} cannot be called; give a Cell or function (output, label)"
        )


def _labels(loss_fn: Callable[..., Any], labels: int | None) -> int:
    """Return how many labels a loss takes: as many as it asks for beside the output."""
    if labels is not None:
        if isinstance(labels, bool) or not isinstance(labels, int):
            raise ArgumentTypeError(f"labels {labels!r} is no number; give how many there are")
        if labels < 1:
            raise ArgumentError(f"labels {labels!r} is below 1; give how many there are")
        return labels
    function = loss_fn.construct if isinstance(loss_fn, nn.Cell) else loss_fn
    signature = _signature(function)
    asked = [
        p
        for p in (signature.parameters.values() if signature is not None else ())
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return max(1, len(asked) - 1)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    # some builtins have none
    except (TypeError, ValueError):
        return None


def _check_trains_nothing(cell: nn.Cell, network: object) -> None:
    """Refuse what does a step of its own: each weight would be trained twice."""
    optimizers = optimizers_in(cell)
    if optimizers:
        name = getattr(network, "__name__", type(network).__name__)
        raise ArgumentError(
            f"network {name} has an optimizer of its own ({type(optimizers[0]).__name__}) and does "
            "a step itself, so that each weight would be trained twice; give the network that "
            "returns the loss, and a train cell as train_cell="
        )


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
    _check_factory(optimizer)
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
    if not _above_zero(clip_norm):
        raise ArgumentError(
            f"clip_norm {clip_norm!r} is not above 0 and finite; give the largest norm, such as 1.0"
        )


def check_gathering(clip_value: object, accumulate: object) -> None:
    """Refuse what gradients cannot be clipped by or gathered over.

    Raises:
        ArgumentError: `clip_value` is no finite number above 0, `accumulate` no count.
    """
    if clip_value is not None and not _above_zero(clip_value):
        raise ArgumentError(
            f"clip_value {clip_value!r} is not above 0 and finite; give the largest size, such as 1"
        )
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise ArgumentError(f"accumulate {accumulate!r} is no number of calls; give 1 or more")


def scaled(train_cell: Any, loss_scale: Any, *, has_aux: bool) -> Any:
    """Return the train cell to use with a loss scale.

    Raises:
        ArgumentError: The scale is no number above 0, or goes with another train cell or a tuple.
    """
    if loss_scale is None:
        return train_cell
    if loss_scale != "dynamic" and not _above_zero(loss_scale):
        raise ArgumentError(
            f"loss_scale {loss_scale!r} is no scale; give a number such as 1024, or 'dynamic'"
        )
    if train_cell is not None or has_aux:
        what = "train_cell=, which decides about it" if train_cell else "has_aux=True"
        raise ArgumentError(f"loss_scale= does not go with {what}; leave one of them out")
    return lambda network, optimizer: ScaledStep(network, optimizer, loss_scale)


def _above_zero(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0


def _check_factory(optimizer: Callable[..., object]) -> None:
    """Refuse a function that cannot be called with the list of parameters alone."""
    signature = _signature(optimizer)
    if signature is None:
        return
    try:
        signature.bind([])
    except TypeError as error:
        name = getattr(optimizer, "__name__", type(optimizer).__name__)
        raise ArgumentTypeError(
            f"optimizer {name}{signature} cannot be called with one argument ({error}); give a "
            "function of the list of parameters to train: lambda p: nn.Momentum(p, 0.1, 0.9)"
        ) from None
