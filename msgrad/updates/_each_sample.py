"""One step per example of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mindspore import Tensor, nn, ops

from msgrad.errors import ArgumentError, ArgumentTypeError, ShapeError


def each_sample(step: Callable[..., Any] | nn.Cell, *inputs: Any) -> Tensor:
    """Take one step per example of a batch, in order, each with the weights left by the last.

    The step gets batches of one example, so it is compiled once for all batch sizes.

    Args:
        step: A `TrainStep`, another train cell, or a function; it returns a loss of one element,
            alone or first in a tuple.
        *inputs: Tensors of shape (N, …), or tuples and lists of such tensors.

    Returns:
        The losses, of shape (N,).

    Raises:
        ArgumentError: There are no inputs.
        ArgumentTypeError: An input is no tensor, or the step returns no loss tensor.
        ShapeError: The inputs have different batch sizes, no batch axis, or no example, or the loss
            has more than one element.

    Examples:
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.WithLossCell(nn.Dense(1, 1, "zeros", "zeros"), nn.MSELoss())
        >>> step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.25))
        >>> mg.each_sample(step, Tensor([[1.0], [1.0]]), Tensor([[1.0], [1.0]])).asnumpy().tolist()
        [1.0, 0.0]
    """
    sizes = [
        found for place, value in enumerate(inputs) for found in _sizes(f"inputs[{place}]", value)
    ]
    if not sizes:
        raise ArgumentError("inputs () are empty; give the tensors of one batch")
    size = sizes[0][1]
    if any(other != size for _, other in sizes):
        given = "\n".join(f"{label}: {other}" for label, other in sizes)
        raise ShapeError(
            f"inputs have different batch sizes; give one example per row in each\n{given}"
        )
    if size == 0:
        raise ShapeError("inputs have 0 examples; give at least one")
    # Cut once: slicing out each example costs more than the step itself.
    cut = [_cut(value) for value in inputs]
    return ops.stack([_loss(step(*(_example(value, i) for value in cut))) for i in range(size)])


def _sizes(label: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from _sizes(f"{label}[{place}]", item)
    elif not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{label} {value!r} is a {type(value).__name__}; give a Tensor")
    elif value.ndim == 0:
        raise ShapeError(f"{label} {value!r} is a scalar; give a tensor of shape (N, ...)")
    else:
        yield label, value.shape[0]


def _cut(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return _like(value, [_cut(item) for item in value])
    return _Cut(ops.split(value, 1))


class _Cut(tuple):
    """The examples of one tensor."""


def _example(value: Any, index: int) -> Any:
    if isinstance(value, _Cut):
        return value[index]
    return _like(value, [_example(item, index) for item in value])


def _like(value: Any, items: list[Any]) -> Any:
    return items if isinstance(value, list) else tuple(items)


def _loss(result: Any) -> Tensor:
    loss: Any = result[0] if isinstance(result, (tuple, list)) and result else result
    if not isinstance(loss, Tensor):
        raise ArgumentTypeError(f"step returned {loss!r}, no loss; return a Tensor of one element")
    if loss.size != 1:
        raise ShapeError(
            f"step returned a loss of shape {loss.shape}; return one element, such as the mean"
        )
    return ops.reshape(loss, ())
