"""A step as a Cell among others: inside other graphs, differentiated, copied, with open shapes."""

from __future__ import annotations

import logging
from typing import Any

from mindspore import nn

from msgrad._errors import ArgumentError
from msgrad._latch import latches
from msgrad._stages import Stages

logger = logging.getLogger("msgrad")


class StepCell(nn.Cell):
    """What MindSpore may do with a step beside calling it, and what is refused.

    A subclass has `inner`, the train cell of its present stage, and `_engine`, its stages.
    """

    inner: nn.Cell
    _engine: Stages

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__["_tells_of_graph"] = True

    def prepare(self, *inputs: Any, runs: bool = False) -> None:
        """Go to the stage that the network asks for now."""
        raise NotImplementedError

    def tell_of_graph(self, tell: bool) -> None:
        """Say whether to warn of a graph around the step, which notices no later change.

        Args:
            tell: Whether it is to be told.
        """
        self.__dict__["_tells_of_graph"] = tell

    def construct(self, *inputs: Any) -> Any:
        # only an outer graph, such as that of a data sink, gets here
        if self.ready_for_graph:
            return self.inner(*inputs)
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "ready_for_graph":
            # asked for in Python, when a graph around the step is compiled
            self._into_graph()
            return True
        return super().__getattr__(name)

    def _into_graph(self) -> None:
        if latches():
            # releasing a latch takes a gradient, which amid a compilation ends the process
            text = (
                "a TrainStep inside ms.jit does not notice a freeze in PYNATIVE_MODE of MindSpore "
                "before 2.8; call the step itself, or use GRAPH_MODE"
            )
            logger.error(text)  # of what is raised here MindSpore tells nothing
            raise ArgumentError(text)
        self.prepare(runs=True)
        if self._tells_of_graph:
            self.tell_of_graph(False)
            logger.warning(
                "a TrainStep is compiled into a graph around it, which notices no later freeze, "
                "stop or stage; call the step itself, or put a Schedule into ms.Model.train"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> StepCell:
        """Refuse to be copied: MindSpore's optimizers cannot be."""
        raise ArgumentError(
            "a TrainStep cannot be copied, since MindSpore's optimizers cannot; copy the network "
            "and make a step over it, and take the state along with .save and .load"
        )

    def set_inputs(self, *inputs: Any, **named: Any) -> None:
        """Say which dimensions of the inputs vary, so that one graph of a stage serves all sizes.

        Args:
            *inputs: A ``Tensor(shape=[None, 3], dtype=…)`` for each input of the step.
            **named: Not used, the inputs of a step have no names.

        Raises:
            ArgumentError: An input is given by name.
        """
        if named:
            raise ArgumentError(
                f"input {next(iter(named))!r} is given by name; give one Tensor per input, in order"
            )
        super().set_inputs(*inputs)
        self._engine.set_inputs(inputs)

    def set_grad(self, requires_grad: bool = True) -> StepCell:
        """Refuse to be differentiated: the step takes the gradient itself.

        Args:
            requires_grad: Whether somebody else wants to.

        Returns:
            The step itself.

        Raises:
            ArgumentError: Somebody does.
        """
        if requires_grad:
            raise ArgumentError(
                "a TrainStep takes the gradient itself and is not put into a train cell; give "
                "ms.Model(step) no optimizer"
            )
        return self
