"""Ready-made rules for `update_weights` and `WeightUpdates`."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentError, NoMatchError, ShapeError
from msgrad.network import copy_of, nearest, places
from msgrad.updates._readable import COPIES, Rule


class SoftUpdate(nn.Cell):
    """Move toward the weight at the same path in another network."""

    def __init__(self, other: nn.Cell, tau: float) -> None:
        super().__init__(auto_prefix=False)
        # In __dict__: as an attribute it would make the other network's weights a state of this
        # rule.
        self.__dict__["_at"] = {place.path: place.parameter for place in places(other)}
        self.tau = tau
        if tau < 1:
            self.__dict__[COPIES] = SoftUpdate(other, 1.0)
        else:
            self.__dict__[COPIES] = self

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
        if self.tau == 1.0:
            return other
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


__all__ = [
    "add_noise",
    "clip",
    "keep_zeros",
    "max_norm",
    "multiply",
    "non_negative",
    "soft_update",
    "unit_norm",
]

Axis = int | tuple[int, ...] | None


def multiply(factor: float) -> Rule:
    """Make a rule that multiplies the weight: ``w · factor``; weight decay by hand.

    Args:
        factor: The number to multiply by, such as 0.999.

    Returns:
        The rule.

    Raises:
        ArgumentError: ``factor`` is NaN or infinite.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones")
        >>> _ = mg.update_weights(net, {"weight": mg.rules.multiply(0.5)})
        >>> net.weight.asnumpy().tolist()
        [[0.5, 0.5]]
    """
    if not math.isfinite(factor):
        raise ArgumentError(f"factor {factor!r} is not finite; give a number such as 0.999")

    def rule(w: Tensor) -> Tensor:
        return w * factor

    return rule


def clip(low: float, high: float) -> Rule:
    """Make a rule that keeps every element in [low, high].

    Args:
        low: Smallest value.
        high: Largest value.

    Returns:
        The rule.

    Raises:
        ArgumentError: ``low`` is above ``high``, or one is NaN.

    References:
        M. Arjovsky, S. Chintala, L. Bottou, "Wasserstein GAN", 2017,
        https://arxiv.org/abs/1701.07875, algorithm 1, line 7.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones")
        >>> _ = mg.update_weights(net, {"weight": mg.rules.clip(-0.25, 0.25)})
        >>> net.weight.asnumpy().tolist()
        [[0.25, 0.25]]
    """
    if not low <= high:
        raise ArgumentError(f"low {low!r} is not below high {high!r}; give clip(low, high)")

    def rule(w: Tensor) -> Tensor:
        return ops.clamp(w, low, high)

    return rule


def non_negative() -> Rule:
    """Make a rule that sets negative elements to 0.

    Returns:
        The rule.

    Examples:
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, Tensor([[-1.0, 2.0]]))
        >>> _ = mg.update_weights(net, {"weight": mg.rules.non_negative()})
        >>> net.weight.asnumpy().tolist()
        [[0.0, 2.0]]
    """

    def rule(w: Tensor) -> Tensor:
        return ops.where(w < 0, ops.zeros_like(w), w)

    return rule


def max_norm(limit: float, axis: Axis = None) -> Rule:
    """Make a rule that shrinks vectors of the weight whose Euclidean norm is above a limit.

    ``w · min(1, limit / |w|)``. A vector within the limit keeps its bits.

    Args:
        limit: Largest norm.
        axis: Axes along which a vector lies; None means all but the first: what comes into one
            output unit of a Dense or a Conv. A weight of one axis is then taken element by element.

    Returns:
        The rule.

    Raises:
        ArgumentError: ``limit`` is not above 0.

    References:
        N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
        2014, https://jmlr.org/papers/v15/srivastava14a.html, section 5.1.

    Examples:
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 2, Tensor([[6.0, 8.0], [0.0, 1.0]]))
        >>> _ = mg.update_weights(net, {"weight": mg.rules.max_norm(5.0)})
        >>> net.weight.asnumpy().tolist()
        [[3.0, 4.0], [0.0, 1.0]]
    """
    if not limit > 0:
        raise ArgumentError(f"limit {limit!r} is not above 0; give the largest norm, such as 3.0")

    def rule(w: Tensor) -> Tensor:
        wide = _wide(w)
        return ops.cast(wide * ops.clamp(limit / _norm(wide, axis), None, 1.0), w.dtype)

    return rule


def unit_norm(axis: Axis = None) -> Rule:
    """Make a rule that gives vectors of the weight the Euclidean norm 1; one of zeros stays.

    ``w / |w|``.

    Args:
        axis: Axes along which a vector lies; None means all but the first, as in `max_norm`.

    Returns:
        The rule.

    References:
        T. Salimans, D. P. Kingma, "Weight Normalization", 2016, https://arxiv.org/abs/1602.07868,
        equation 2 with g = 1.

    Examples:
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, Tensor([[0.0, 8.0]]))
        >>> _ = mg.update_weights(net, {"weight": mg.rules.unit_norm()})
        >>> net.weight.asnumpy().tolist()
        [[0.0, 1.0]]
    """

    def rule(w: Tensor) -> Tensor:
        wide = _wide(w)
        norm = _norm(wide, axis)
        return ops.cast(wide / ops.where(norm > 0, norm, ops.ones_like(norm)), w.dtype)

    return rule


def add_noise(stddev: float, seed: int = 0) -> Rule:
    """Make a rule that adds Gaussian noise: ``w + stddev · n``.

    The noise is a function of seed, step, name and place of the element, not of a hidden generator:
    the same step draws the same noise again, in another process too, so that a resumed run equals
    an uninterrupted one.

    Args:
        stddev: Standard deviation of the noise.
        seed: Another number gives other noise.

    Returns:
        The rule.

    Raises:
        ArgumentError: ``stddev`` is negative, NaN or infinite.

    References:
        G. E. P. Box, M. E. Muller, "A Note on the Generation of Random Normal Deviates", 1958,
        https://doi.org/10.1214/aoms/1177706645, equation 1, on bits of the 32-bit mixing function
        "lowbias32" of C. Wellons, 2018, https://nullprogram.com/blog/2018/07/31/.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "zeros")
        >>> _ = mg.update_weights(net, {"weight": mg.rules.add_noise(0.1)})
        >>> bool((net.weight != 0).all())
        True
    """
    if not 0 <= stddev < math.inf:
        raise ArgumentError(f"stddev {stddev!r} is no deviation; give 0 or more, such as 0.01")
    return Noise(stddev, seed)


def soft_update(other: nn.Cell, tau: float) -> Rule:
    """Make a rule that moves the weight toward the one at the same path in another network.

    ``(1 - tau) · w + tau · other``; with ``tau`` 1 it copies. Running statistics and integers that
    the pattern selects are copied at each update, and weights are taken whatever their flags say.
    The other network is only read. The two networks need different parameter names, as they have
    inside one Cell, or after ``target.update_parameters_name("target.")``.

    Args:
        other: Network to move toward, built like the one that is updated.
        tau: Share of the other network in one update, in [0, 1].

    Returns:
        The rule; where it is used it raises NoMatchError if ``other`` has nothing at that path,
        ShapeError if what stands there has another shape or dtype.

    Raises:
        ArgumentError: ``tau`` is not in [0, 1].

    References:
        T. P. Lillicrap et al., "Continuous Control with Deep Reinforcement Learning", 2015,
        https://arxiv.org/abs/1509.02971, algorithm 1, last two lines.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> agent = nn.CellList([nn.Dense(1, 1, "ones"), nn.Dense(1, 1, "zeros")])
        >>> online, target = agent
        >>> mg.update_weights(target, {"weight": mg.rules.soft_update(online, tau=0.25)})
        ['1.weight']
        >>> target.weight.asnumpy().tolist()
        [[0.25]]
    """
    if not 0 <= tau <= 1:
        raise ArgumentError(f"tau {tau!r} is no share; give a number from 0 to 1, such as 0.005")
    return SoftUpdate(other, tau)


def keep_zeros() -> Rule:
    """Make a rule that sets to 0 again what was 0 when the update was made.

    So a pruned weight stays sparse. Which elements those are is saved with the step.

    Returns:
        The rule.

    References:
        S. Han et al., "Learning both Weights and Connections for Efficient Neural Networks", 2015,
        https://arxiv.org/abs/1506.02626, section 3.

    Examples:
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, Tensor([[0.0, 2.0]]))
        >>> prune = mg.WeightUpdates(net, {"weight": mg.rules.keep_zeros()})
        >>> prune.names
        ['weight']
    """
    return KeepZeros()


def _wide(w: Tensor) -> Tensor:
    # The squares of a 16-bit weight overflow.
    return w if w.dtype == mstype.float64 else ops.cast(w, mstype.float32)


def _norm(w: Tensor, axis: Axis) -> Tensor:
    if axis is None and w.ndim < 2:
        return ops.abs(w)
    axes = tuple(range(1, w.ndim)) if axis is None else axis
    return ops.sqrt(ops.sum(w * w, axes, True))
