"""A weight's values: the one way to copy them, to write them, and to compare their bits."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore import dtype as mstype


def copy_of(weight: Tensor) -> np.ndarray:
    """Return the values as an array of their own; bfloat16 is widened to float32, exactly."""
    if weight.dtype == mstype.bfloat16:
        weight = ops.cast(weight, mstype.float32)
    # On the CPU asnumpy shares memory with the weight.
    return np.array(weight.asnumpy(), copy=True)


_writes = [0]


def writes() -> int:
    """Count the values that were written from Python so far."""
    return _writes[0]


def write(parameter: Parameter, value: Tensor | np.ndarray) -> None:
    """Write values of the same shape and dtype in place; the weight stays the optimizer's.

    `set_data` and `assign_value` detach a weight from the optimizer in some modes and check no
    shape.
    """
    _writes[0] += 1
    if not isinstance(value, Tensor):
        value = Tensor(value, parameter.dtype)
    if parameter.dtype == mstype.bfloat16 and ms.get_context("device_target") == "CPU":
        # Assign has no such kernel there; nor has any optimizer, so that none can lose the weight
        parameter.assign_value(value)
        return
    ops.assign(parameter, value)


def bits(values: np.ndarray) -> np.ndarray:
    """View the values as unsigned integers: -0.0 differs from 0.0, NaN equals the same NaN."""
    values = np.ascontiguousarray(values)
    return (
        values.view(f"u{values.dtype.itemsize}")
        if values.dtype.itemsize in (1, 2, 4, 8)
        else values.view("u1")
    )
