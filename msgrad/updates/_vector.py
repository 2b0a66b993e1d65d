"""Several parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, ops

from msgrad.errors import ArgumentError, ArgumentTypeError, ShapeError


def parameters_to_vector(parameters: Sequence[Parameter]) -> Tensor:
    """Copy parameters into one vector, in the order given; inside a graph as well.

    Inside ``construct`` give a ``ParameterTuple`` or a tuple that the cell holds; the gradient
    flows through.

    Args:
        parameters: Parameters of one dtype, such as ``net.trainable_params()`` or a selection.

    Returns:
        A vector of its own with all elements, each parameter in row-major order.

    Raises:
        ArgumentTypeError: ``parameters`` is a Cell.
        ArgumentError: ``parameters`` is empty.
        ShapeError: The parameters have different dtypes.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones", "zeros")
        >>> mg.parameters_to_vector(net.trainable_params()).asnumpy().tolist()
        [1.0, 1.0, 0.0]
    """
    _check_list(hasattr(parameters, "trainable_params"))
    _check_dtypes(_labels(parameters), [p.dtype for p in parameters])
    return ops.concat([ops.reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vector: Tensor, parameters: Sequence[Parameter]) -> None:
    """Write a vector into parameters, in place and in the order given; inside a graph as well.

    The parameters stay the optimizer's. Nothing is written unless all fits.

    Args:
        vector: A vector with exactly as many elements as the parameters have, of their dtype.
        parameters: Parameters of one dtype.

    Raises:
        ArgumentTypeError: ``parameters`` is a Cell.
        ArgumentError: ``parameters`` is empty.
        ShapeError: The vector has another length or dtype, or the parameters have different dtypes.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones", "zeros")
        >>> vector = mg.parameters_to_vector(net.trainable_params())
        >>> mg.vector_to_parameters(2 * vector, net.trainable_params())
        >>> net.weight.asnumpy().tolist()
        [[2.0, 2.0]]
    """
    _check_list(hasattr(parameters, "trainable_params"))
    _check_dtypes(_labels(parameters), [p.dtype for p in parameters])
    sizes = [p.size for p in parameters]
    _check_vector(vector.shape, vector.dtype, sizes, parameters[0].dtype)
    pieces = ops.split(vector, sizes)
    for i, p in enumerate(parameters):
        ops.assign(p, ops.reshape(pieces[i], p.shape))


def _labels(parameters: Sequence[Parameter]) -> list[str]:
    labels = []
    for i, p in enumerate(parameters):
        # Inside a graph a parameter has no name, and hasattr says so.
        if hasattr(p, "name"):
            labels.append(p.name)
        else:
            labels.append(f"parameters[{i}]")
    return labels


# constexpr, so that the same check raises in Python while a graph is compiled.
@ops.constexpr
def _check_list(is_cell: bool) -> bool:
    if is_cell:
        raise ArgumentTypeError("parameters is a Cell; give a list, as net.trainable_params()")
    return True


@ops.constexpr
def _check_dtypes(labels: Sequence[str], dtypes: Sequence[Any]) -> bool:
    if not labels:
        raise ArgumentError("parameters () are empty; give at least one")
    for label, dtype in zip(labels, dtypes, strict=True):
        if dtype != dtypes[0]:
            raise ShapeError(
                "parameters have different dtypes; give those of one dtype\n"
                f"{labels[0]}: {_written(dtypes[0])}\n{label}: {_written(dtype)}"
            )
    return True


@ops.constexpr
def _check_vector(shape: Sequence[int], dtype: Any, sizes: Sequence[int], expected: Any) -> bool:
    if tuple(shape) != (sum(sizes),) or dtype != expected:
        raise ShapeError(
            f"vector does not fit {len(sizes)} parameters; give one number per element\n"
            f"parameters: {_written(expected)} ({sum(sizes)},)\n"
            f"vector: {_written(dtype)} {tuple(shape)}"
        )
    return True


def _written(dtype: Any) -> str:
    return str(dtype).lower()
