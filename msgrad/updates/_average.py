"""A moving average of the weights, beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.backend import running_in
from msgrad.errors import ArgumentError
from msgrad.freezing import records_of
from msgrad.network import Pattern, copy_of, select, write

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

    Outputs:
        Tensor of shape (), int32: the number of updates done.

    Attributes:
        when: "after_step", the point of a step at which it runs.
        names: The names of the parameters that it follows, in network order.
        step: The number of updates done, a Parameter.

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
        self.map = ops.HyperMap()
        self.step = Parameter(Tensor(0, mstype.int32), name="step", requires_grad=False)
        # In __dict__: the weights remain the network's alone.
        self.__dict__["_averaged"] = tuple(averaged)
        self.__dict__["_copied"] = tuple(copied)
        self.__dict__["_averages"] = tuple(_state_for(weight) for weight in averaged)
        self.__dict__["_copies"] = tuple(_state_for(weight) for weight in copied)
        for state in self._averages + self._copies:
            self.insert_param_to_cell(state.name, state, check_name_contain_dot=False)
        self.__dict__["_swapped"] = False
        self.name_state("moving_average")

    def name_state(self, prefix: str) -> None:
        """Name the averages and the counter, so that two of them in one step differ.

        Args:
            prefix: What the names begin with.
        """
        self.step.name = f"{prefix}.step"
        for weight, state in self._pairs():
            state.name = f"{prefix}.{weight.name}"

    def update(self) -> None:
        """Take the present weights into the average, in one compiled graph.

        Raises:
            ArgumentError: The average is swapped in.
        """
        self()

    def __call__(self) -> Tensor:
        if self._swapped:
            raise ArgumentError("average is swapped in, it cannot be updated; leave swap() first")
        with running_in(ms.GRAPH_MODE):
            return super().__call__()

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Lend the averages to the network for the length of a ``with`` block.

        At its end, by an exception too, the weights are back bit for bit; what a training step
        changed in the block is lost. The weights stay the optimizer's throughout.

        Raises:
            ArgumentError: The average is swapped in already.

        Yields:
            Nothing.
        """
        if self._swapped:
            raise ArgumentError("average is swapped in already; leave the outer swap() first")
        kept = [(weight, copy_of(weight)) for weight, _ in self._pairs()]
        self.__dict__["_swapped"] = True
        try:
            for weight, state in self._pairs():
                write(weight, ops.cast(state, weight.dtype))
            yield
        finally:
            for weight, values in kept:
                write(weight, values)
            self.__dict__["_swapped"] = False

    def construct(self) -> Tensor:
        self.map(self.follow, self._averages, self._averaged)
        self.map(ops.assign, self._copies, self._copied)
        ops.assign_add(self.step, 1)
        return self.step.value()

    def follow(self, average: Parameter, weight: Parameter) -> Tensor:
        """Move one average toward its weight."""
        return ops.assign(
            average, average + self.rate * (ops.cast(weight, average.dtype) - average)
        )

    def _pairs(self) -> list[tuple[Parameter, Parameter]]:
        weights = self._averaged + self._copied
        return list(zip(weights, self._averages + self._copies, strict=True))


def _state_for(weight: Parameter) -> Parameter:
    dtype = mstype.float32 if weight.dtype in _NARROW else weight.dtype
    return Parameter(Tensor(copy_of(weight), dtype), name=str(weight.name), requires_grad=False)
