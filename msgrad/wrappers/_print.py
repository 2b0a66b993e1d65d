"""PrintWeights: a wrapper that prints the weights of its cell from inside the compiled graph."""

from __future__ import annotations

from typing import Any

from mindspore import dtype as mstype
from mindspore import nn, ops

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import asked_to_train
from msgrad.network import hide
from msgrad.wrappers._wrapper import CellWrapper


class PrintWeights(CellWrapper):
    """Prints the weights of the wrapped cell each N training calls, under their names.

    The `Print` operator of the compiled graph does it, on the standard output of the process, so
    what is seen are the values that this call computes with, before its update. In evaluation
    (``set_train(False)``, as every Cell begins) nothing is printed or counted; export a network
    in evaluation. `recompute` in PYNATIVE_MODE runs the cell twice and prints and counts twice.

    Args:
        cell: The cell to wrap; its parameters and those inside it are printed.
        every: Training calls from one print to the next, 1 or more; the first call prints.

    Inputs:
        Those of the wrapped cell.

    Outputs:
        Those of the wrapped cell.

    Raises:
        ArgumentError: ``every`` is less than 1, or the cell has no parameters.
        ArgumentTypeError: ``every`` is no integer, or ``cell`` is not a Cell.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.wrap(net, "0", wrapper=lambda cell: mg.PrintWeights(cell, every=100))
        ['0']
    """

    def __init__(self, cell: nn.Cell, every: int = 1) -> None:
        super().__init__(cell)
        if isinstance(every, bool) or not isinstance(every, int):
            raise ArgumentTypeError(f"every {every!r} is a {type(every).__name__}; give an integer")
        if every < 1:
            raise ArgumentError(
                f"every {every!r} is less than 1; give the calls between two prints"
            )
        if not self._named_weights:
            raise ArgumentError(
                f"cell {type(cell).__name__} has no parameters to print; choose one that has"
            )
        self._every = every
        self._print = ops.Print()
        hide(self, "_calls", 0, mstype.int32)

    def __getattr__(self, name: str) -> Any:
        # Not a property, which a graph would parse: this runs in Python whenever the graph is
        # compiled, and finds the names and the weights of that moment.
        if name == "_named_weights":
            return tuple((p.name, p) for p in self.cell.get_parameters())
        if name == "_in_training":
            # A frozen cell behaves as in evaluation, yet its weights are what one wants to see.
            return asked_to_train(self)
        return super().__getattr__(name)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Print where it is time to, and call the wrapped cell."""
        if self._in_training:
            # A condition on a tensor is control flow: not for one that always prints.
            if self._every == 1:
                self._show()
            else:
                if self._calls % self._every == 0:
                    self._show()
                ops.assign_add(self._calls, 1)
        return self.cell(*args, **kwargs)

    def extend_repr(self) -> str:
        """Return how often it prints."""
        return f"every={self._every}"

    def _show(self) -> None:
        for name, weight in self._named_weights:
            self._print(name, weight)
