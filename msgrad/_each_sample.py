"""One step per example of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mindspore import Tensor, nn, ops

from msgrad._errors import ArgumentError, ArgumentTypeError, ShapeError


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
    sizes = {
        index: size for index, value in enumerate(inputs) for size in _batch_sizes(index, value)
    }
    if not sizes:
        raise ArgumentError("inputs () are empty; give the tensors of one batch")
    if len(set(sizes.values())) > 1:
        given = "\n".join(f"inputs[{index}]: {size}" for index, size in sizes.items())
        raise ShapeError(
            f"inputs have different batch sizes; give one example per row in each\n{given}"
        )
    size = next(iter(sizes.values()))
    if size == 0:
        raise ShapeError("inputs have 0 examples; give at least one")
    # Cut once: slicing out each example costs more than the step itself.
    cut = [_cut(value) for value in inputs]
    return ops.stack([_loss(step(*(_example(value, i) for value in cut))) for i in range(size)])


def _batch_sizes(index: int, value: Any) -> Iterator[int]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _batch_sizes(index, item)
    elif not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"inputs[{index}] {value!r} is a {type(value).__name__}; give a Tensor"
        )
    elif value.ndim == 0:
        raise ShapeError(f"inputs[{index}] {value!r} is a scalar; give a tensor of shape (N, ...)")
    else:
        yield value.shape[0]


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
