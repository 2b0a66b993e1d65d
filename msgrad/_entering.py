"""Steps that others lead: an audit, a data sink or a Schedule brings one to a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgrad._reach import Reach
from msgrad._step import Position, TrainStep


def enter_as_next_call(
    step: TrainStep, inputs: Sequence[object], look: Callable[[], Reach]
) -> None:
    """Bring a step to the stage of its next call, with a reach that the caller finds."""
    step._watch.settle()
    step._trainable.learn(step._watch.routes(), look())
    if step._watch.changed():
        step._enter(inputs, runs=True)


def enter_for_sink(step: TrainStep) -> str:
    """Bring a step to the stage that a data sink runs next; return a phase for its outer cell."""
    # the Schedule that asks for this tells of each change
    step.tell_of_graph(False)
    step.prepare(runs=True)
    return f"train.stage{step._engine.number}"


def count_steps(step: TrainStep, number: int) -> None:
    """Count steps that an outer graph did, which never calls the step."""
    done, epoch = step.position
    step.__dict__["_position"] = Position(done + number, epoch)


@contextmanager
def position_kept(step: TrainStep) -> Iterator[None]:
    """Put the position of a step back after a block."""
    position = step.position
    try:
        yield
    finally:
        step.__dict__["_position"] = position
