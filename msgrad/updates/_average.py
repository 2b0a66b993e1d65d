"""A moving average of the weights, beside them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._text import few
from msgrad.backend import running_in
from msgrad.errors import ArgumentError
from msgrad.freezing import records_of
from msgrad.network import Pattern, bits, copy_of, every_cell, lent, refuse_lent, select, write
from msgrad.updates._bound_rule import check_there

logger = logging.getLogger("msgrad")

_each = ops.HyperMap()
_NARROW = (mstype.float16, mstype.bfloat16)


class MovingAverage(nn.Cell):
    """Keep an exponential moving average of weights, and lend it to the network.

    ``average += (1 - decay) · (weight - average)``, from the weights as they are when it is made;
    so a weight that does not move keeps its bits. Integers are copied. Averages of 16-bit weights
    are kept in 32 bits, where small steps do not vanish. As ``updates=`` of a `TrainStep` it
    follows each optimizer update and is saved with the step.

    Args:
        net: Network that owns the weights.
        *patterns: What to average, see `select`; none means the whole network.
        decay: Share of the average that stays at each update, in [0, 1].
        statistics: What happens to running statistics of norm layers: "copy" or "average".
        warmup: Whether the average moves faster at first: at update t (from 0) the decay is
            ``min(decay, (1 + t) / (10 + t))``, as in TensorFlow's ExponentialMovingAverage.

    Outputs:
        Tensor of shape (), int32: the number of updates done.

    Attributes:
        when: "after_step", the point of a step at which it runs.
        names: The names of the parameters that it follows, in network order.
        step: The number of updates done, a Parameter.
        network: A network of its own that computes with the averages as they are now: a teacher, a
            target network, for evaluation. Made at the first use; what is not averaged it shares.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: ``decay`` is not in [0, 1], or ``statistics`` is unknown.

    References:
        B. T. Polyak, A. B. Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992,
        https://doi.org/10.1137/0330046; the exponential form as in A. Tarvainen, H. Valpola, "Mean
        teachers are better role models", 2017, https://arxiv.org/abs/1703.01780, equation 1.

    Examples:
        >>> from mindspore import Tensor, nn, ops
        >>> import msgrad as mg
        >>> net = nn.Dense(1, 1, "zeros")
        >>> average = mg.MovingAverage(net, decay=0.75)
        >>> _ = ops.assign(net.weight, Tensor([[1.0]]))
        >>> average.update()
        >>> with average.swap():
        ...     net.weight.asnumpy().tolist()
        [[0.25]]
        >>> net.weight.asnumpy().tolist()
        [[1.0]]
    """

    when = "after_step"

    def __init__(
        self,
        net: nn.Cell,
        *patterns: Pattern,
        decay: float = 0.999,
        statistics: Literal["copy", "average"] = "copy",
        warmup: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if not 0 <= decay <= 1:
            raise ArgumentError(
                f"decay {decay!r} is no share; give a number from 0 to 1, such as 0.999"
            )
        if statistics not in ("copy", "average"):
            raise ArgumentError(f"statistics {statistics!r} is unknown; give 'copy' or 'average'")
        chosen = list(select(net, *(patterns or ("*",))))
        records = records_of(net)
        averaged = [
            weight
            for weight in chosen
            if records[id(weight)].floating
            and (statistics == "average" or not records[id(weight)].statistic)
        ]
        taken = {id(weight) for weight in averaged}
        copied = [weight for weight in chosen if id(weight) not in taken]
        self.names = [str(weight.name) for weight in chosen]
        self.rate = 1.0 - decay
        self.warmup = bool(warmup)
        self.step = Parameter(Tensor(0, mstype.int32), name="step", requires_grad=False)
        # In __dict__: the weights remain the network's alone.
        self.__dict__["_net"] = net
        self.__dict__["_averaged"] = tuple(averaged)
        self.__dict__["_copied"] = tuple(copied)
        self.__dict__["_averages"] = tuple(_state_for(weight) for weight in averaged)
        self.__dict__["_copies"] = tuple(_state_for(weight) for weight in copied)
        for state in self._averages + self._copies:
            self.insert_param_to_cell(state.name, state, check_name_contain_dot=False)
        self.name_state("moving_average")

    def name_state(self, prefix: str) -> None:
        """Name the averages and the counter, so that two of them in one step differ.

        Args:
            prefix: What the names begin with.
        """
        self.step.name = f"{prefix}.step"
        for weight, state in self._pairs():
            state.name = f"{prefix}.{weight.name}"

    def restart(self) -> None:
        """Begin anew at the present weights, as when it was made."""
        for weight, state in self._pairs():
            write(state, ops.cast(weight, state.dtype))
        write(self.step, np.int32(0))

    def update(self) -> None:
        """Take the present weights into the average, in one compiled graph.

        Raises:
            ArgumentError: The average is swapped in, or a weight was exchanged.
        """
        self()

    def check(self) -> None:
        """Refuse to go on where a weight has been exchanged since.

        Raises:
            ArgumentError: A weight is not in the network any more.
        """
        check_there(self._net, self._averaged + self._copied, "MovingAverage")

    def __call__(self) -> Tensor:
        self.check()
        refuse_lent(self._averaged + self._copied, "it cannot be updated")
        with running_in(ms.GRAPH_MODE):
            return super().__call__()

    @property
    def network(self) -> nn.Cell:
        """The network that computes with the averages, in evaluation mode, with no gradient.

        Raises:
            ArgumentError: The averages of 16-bit weights have 32 bits; use ``swap()``.
        """
        if "_twin" not in self.__dict__:
            self.__dict__["_twin"] = self._make_network()
        return self.__dict__["_twin"]

    def _make_network(self) -> nn.Cell:
        states = {id(weight): state for weight, state in self._pairs()}
        narrow = next((w.name for w in self._averaged if w.dtype in _NARROW), None)
        if narrow is not None:
            raise ArgumentError(
                f"average of {narrow!r} is kept in 32 bits and the network computes in 16; use "
                "swap(), or average a network of 32-bit weights"
            )
        twin = copy.deepcopy(self._net)
        pairs = zip(twin.get_parameters(), self._net.get_parameters(), strict=True)
        kept = {id(new): states.get(id(old), old) for new, old in pairs}
        for cell in every_cell(twin):
            own = cell.__dict__["_params"]
            own.update({key: kept.get(id(p), p) for key, p in own.items()})
        twin.set_grad(False)
        return twin.set_train(False)

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Lend the averages to the network for the length of a ``with`` block.

        At its end, by an exception too, the weights are back bit for bit, and what else changed
        them in the block is lost, with a warning. Training, loading and auditing are refused in it;
        `save_trainable`, ``mindspore.save_checkpoint`` and ``mindspore.export`` write the averages
        under the names of the weights. The weights stay the optimizer's throughout.

        Raises:
            ArgumentError: The average is swapped in already, or a weight was exchanged.

        Yields:
            Nothing.
        """
        self.check()
        pairs = self._pairs()
        refuse_lent((weight for weight, _ in pairs), "no other can be")
        kept = [(weight, copy_of(weight)) for weight, _ in pairs]
        with lent(weight for weight, _ in pairs):
            try:
                for weight, state in pairs:
                    write(weight, ops.cast(state, weight.dtype))
                yield
            finally:
                _warn_of_loss(pairs)
                for weight, values in kept:
                    write(weight, values)

    def construct(self) -> Tensor:
        rate = self.rate
        if self.warmup:
            rate = ops.maximum(rate, 9.0 / (10.0 + ops.cast(self.step, mstype.float32)))
        _each(ops.partial(self.follow, rate), self._averages, self._averaged)
        _each(ops.assign, self._copies, self._copied)
        ops.assign_add(self.step, 1)
        return self.step.value()

    def follow(self, rate: Any, average: Parameter, weight: Parameter) -> Tensor:
        """Move one average toward its weight."""
        difference = ops.cast(weight, average.dtype) - average
        return ops.assign(average, average + ops.cast(rate * difference, average.dtype))

    def _pairs(self) -> list[tuple[Parameter, Parameter]]:
        weights = self._averaged + self._copied
        return list(zip(weights, self._averages + self._copies, strict=True))


def _warn_of_loss(pairs: Sequence[tuple[Parameter, Parameter]]) -> None:
    changed = [
        weight.name
        for weight, state in pairs
        if (bits(copy_of(weight)) != bits(copy_of(ops.cast(state, weight.dtype)))).any()
    ]
    if changed:
        logger.warning(
            "swap() puts back %s, which changed inside it: what changed is lost", few(changed)
        )


def _state_for(weight: Parameter) -> Parameter:
    dtype = mstype.float32 if weight.dtype in _NARROW else weight.dtype
    return Parameter(Tensor(copy_of(weight), dtype), name=str(weight.name), requires_grad=False)
