"""Rules that are Cells: they have a value beside each weight, a state or what belongs to others."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._errors import NoMatchError, ShapeError
from msgrad._names import nearest
from msgrad._paths import places
from msgrad._weights import copy_of


class SoftUpdate(nn.Cell):
    """Move toward the weight at the same path in another network."""

    def __init__(self, other: nn.Cell, tau: float) -> None:
        super().__init__(auto_prefix=False)
        # In __dict__: as an attribute it would make the other network's weights a state of this
        # rule.
        self.__dict__["_at"] = {place.path: place.parameter for place in places(other)}
        self.tau = tau

    def companion_of(self, parameter: Parameter, path: str) -> Tensor:
        """Return the weight to move toward.

        Raises:
            NoMatchError: The other network has nothing at that path.
            ShapeError: What it has there is of another shape or dtype.
        """
        found = self._at.get(path)
        if found is None:
            near = nearest(path, self._at)
            raise NoMatchError(
                f"path {path!r} is none of {len(self._at)} in the other network, "
                f"the nearest are {near}; give two networks of the same build",
                pattern=path,
                nearest=near,
            )
        if (found.shape, found.dtype) != (parameter.shape, parameter.dtype):
            raise ShapeError(
                f"path {path!r} differs in the other network; give two networks of the same build\n"
                f"weight: {str(parameter.dtype).lower()} {parameter.shape}\n"
                f"other: {str(found.dtype).lower()} {found.shape}"
            )
        return found

    def construct(self, w: Tensor, other: Tensor) -> Tensor:
        return (1.0 - self.tau) * w + self.tau * other


class KeepZeros(nn.Cell):
    """Set to 0 again what was 0."""

    def state_of(self, parameter: Parameter, path: str) -> Parameter:
        """Return what stays: True where the weight is not 0."""
        return Parameter(Tensor(copy_of(parameter) != 0), name="kept", requires_grad=False)

    def construct(self, w: Tensor, kept: Tensor) -> Tensor:
        return ops.where(kept, w, ops.zeros_like(w))


class Noise(nn.Cell):
    """Add Gaussian noise that is a function of seed, step, name and place of the element."""

    def __init__(self, stddev: float, seed: int) -> None:
        super().__init__(auto_prefix=False)
        self.stddev = stddev
        self.seed = seed

    def companion_of(self, parameter: Parameter, path: str) -> Tensor:
        """Return a number that tells this weight from the others."""
        key = crc32(f"{self.seed}:{parameter.name}".encode())
        return Tensor(np.uint32(key).astype(np.int32), mstype.int32)

    def construct(self, w: Tensor, key: Tensor, step: Tensor) -> Tensor:
        place = ops.cast(ops.arange(w.size), mstype.int32)
        key = _mix(ops.bitwise_xor(_mix(step), key))
        # u in (0, 1], so that its logarithm is finite; v in [0, 1).
        u = (_share(ops.bitwise_xor(_mix(2 * place), key)) + 1.0) / 16777216.0
        v = _share(ops.bitwise_xor(_mix(2 * place + 1), key)) / 16777216.0
        noise = ops.sqrt(-2.0 * ops.log(u)) * ops.cos(2.0 * math.pi * v)
        return ops.cast(
            ops.cast(w, mstype.float32) + self.stddev * ops.reshape(noise, w.shape), w.dtype
        )


def _share(bits: Tensor) -> Tensor:
    return ops.cast(_shift(_mix(bits), 8), mstype.float32)


def _mix(x: Tensor) -> Tensor:
    # Signed, since devices lack unsigned products; they wrap to the same bits.
    x = ops.bitwise_xor(x, _shift(x, 16)) * 0x7FEB352D
    x = ops.bitwise_xor(x, _shift(x, 15)) * (0x846CA68B - 0x100000000)
    return ops.bitwise_xor(x, _shift(x, 16))


def _shift(x: Tensor, count: int) -> Tensor:
    """Shift to the right, filling with zeros."""
    shifted = ops.bitwise_right_shift(x, Tensor(count, mstype.int32))
    return ops.bitwise_and(shifted, Tensor((1 << (32 - count)) - 1, mstype.int32))
