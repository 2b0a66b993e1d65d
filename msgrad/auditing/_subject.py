"""What is audited: the network, its optimizers, and how a step is run, from any way to train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import mindspore as ms
from mindspore import nn

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import asked_to_train
from msgrad.network import every_cell
from msgrad.optim import OptimizerWrapper, optimizers_in, parts_of
from msgrad.training import FunctionNetwork, TrainStep, gradient_functions, guarded


@dataclass(frozen=True)
class Subject:
    """One way to train, seen from outside.

    Attributes:
        run: Does one step.
        network: The cell whose parameters are told about.
        loss: The cell that returns the loss; None where it is not known.
        holder: The cell around the optimizers; None for a function.
        optimizers: What moves the weights.
        batches: The inputs of the steps, at least one.
        mode: Puts the step in the mode it trains in, for the length of a block.
    """

    run: Callable[..., object]
    network: nn.Cell
    loss: nn.Cell | None
    holder: nn.Cell | None
    optimizers: list[nn.Cell]
    batches: list[tuple[object, ...]]
    mode: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)

    @property
    def cells(self) -> list[nn.Cell]:
        """All that a step may change."""
        step = self.holder
        inner = [step.inner] if isinstance(step, TrainStep) else []
        return [c for c in (self.network, step, *inner, *self.optimizers) if c is not None]


def subject_of(
    step: object,
    inputs: Sequence[object],
    steps: int,
    net: nn.Cell | None,
    optimizer: nn.Cell | Sequence[nn.Cell] | None,
) -> Subject:
    """Find network, optimizers and inputs of what the user trains with."""
    if isinstance(step, ms.Model):
        return _of_model(step, inputs, steps)
    _check_inputs(inputs)
    if isinstance(step, nn.Cell):
        if net is not None or optimizer is not None:
            raise ArgumentError("net= and optimizer= go with a function; a train cell has its own")
        return _of_cell(step, [tuple(inputs)])
    return _of_function(step, inputs, net, optimizer)


def optimizers_of(step: TrainStep) -> list[nn.Cell]:
    """List the optimizers of a step's stage: one that holds several stays one."""
    optimizer = step.optimizer
    return [optimizer] if isinstance(optimizer, OptimizerWrapper) else parts_of(optimizer)


def _of_cell(step: nn.Cell, batches: list[tuple[object, ...]]) -> Subject:
    if isinstance(step, TrainStep):
        loss = guarded(step.network, ms.GRAPH_MODE)
        return Subject(step, step.network, loss, step, optimizers_of(step), batches)
    optimizers = optimizers_in(step)
    if not optimizers:
        raise ArgumentError(
            f"step {type(step).__name__} has no optimizer among its cells; give a TrainStep, a "
            "train cell, a Model, or the function that does a step with net= and optimizer="
        )
    network = step._cells.get("network")
    if network is None or len(optimizers) > 1:
        return Subject(step, step, None, step, optimizers, batches)
    return Subject(step, network, network, step, optimizers, batches)


def _of_model(model: ms.Model, inputs: Sequence[object], steps: int) -> Subject:
    if len(inputs) != 1 or not hasattr(inputs[0], "create_tuple_iterator"):
        raise ArgumentTypeError(
            f"inputs of a Model are {len(inputs)} values; give one dataset: audit(model, dataset)"
        )
    dataset: Any = inputs[0]
    rows = dataset.create_tuple_iterator(num_epochs=1)
    batches = [tuple(row) for row in islice(rows, steps)]
    _check_inputs(batches)
    step = model.train_network
    found = _of_cell(step, batches)

    @contextmanager
    def mode() -> Iterator[None]:
        with in_training(step):
            yield

    return Subject(
        found.run, found.network, found.loss, found.holder, found.optimizers, batches, mode
    )


def _of_function(
    function: object,
    inputs: Sequence[object],
    net: nn.Cell | None,
    optimizer: nn.Cell | Sequence[nn.Cell] | None,
) -> Subject:
    if not callable(function):
        raise ArgumentTypeError(
            f"step {function!r} cannot be called; give a TrainStep, a train cell, a Model or the "
            "function that does a step"
        )
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not isinstance(net, nn.Cell) or not all(isinstance(o, nn.Cell) for o in optimizers):
        raise ArgumentTypeError(
            f"step {getattr(function, '__name__', function)!r} is a function, which does not say "
            "what it trains; give net= and optimizer= as well"
        )
    loss = _loss_of(function, net)
    return Subject(function, net, loss, None, optimizers, [tuple(inputs)])


def _loss_of(function: Callable[..., object], net: nn.Cell) -> nn.Cell | None:
    """Return the loss that a step function differentiates, where it is one and can be seen."""
    found = {id(g.function): g.function for g in gradient_functions(function)}
    if len(found) != 1:
        return None
    (differentiated,) = found.values()
    if isinstance(differentiated, nn.Cell):
        return differentiated
    return FunctionNetwork(differentiated, net)


def _check_inputs(inputs: Sequence[object]) -> None:
    if not inputs:
        raise ArgumentError("audit got no inputs; give one batch, as the step is called with")


@contextmanager
def in_training(cell: nn.Cell) -> Iterator[None]:
    """Put a cell in training as `Model.train` does, and each of its cells back as it was."""
    modes = [(part, asked_to_train(part)) for part in every_cell(cell)]
    phase = cell.phase
    cell.set_train()
    cell.phase = "train"
    try:
        yield
    finally:
        for part, mode in modes:
            part.add_flags(training=mode)
        cell.phase = phase
