"""The evidence: what real steps and the graph of the gradients say of each parameter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
from mindspore import Tensor
from mindspore import dtype as mstype

from msgrad._culprit import Cut, cuts
from msgrad._gradients import FunctionGradients, Gradients, LossGradients, StepGradients
from msgrad._paths import cell_paths, layers_of
from msgrad._reach import Reach, random_inputs, silence
from msgrad._rehearsal import Rehearsal, rehearsal
from msgrad._slots import own_parameters, owner_of
from msgrad._snapshot import MovementRow
from msgrad._step import TrainStep, enter_as_next_call, position_kept
from msgrad._subject import Subject
from msgrad._weights import copy_of

logger = logging.getLogger("msgrad")


@dataclass
class Evidence:
    """What was seen; weights are named by their ids.

    Attributes:
        watched: The parameters and buffers that get a row, by name, in network order.
        gradients: Norms before the steps; empty where they could not be taken.
        later: Norms after the steps, where one was zero before them.
        elsewhere: Largest norms on random inputs, where one was zero twice.
        reach: Where a gradient can get to; None where nothing says so.
        cuts: What cuts the gradient of what it cannot get to, by name.
        movement: How far each went.
        state: Whether the optimizer state of a weight moved, by its name.
        called: Whether an optimizer was called.
        losses: The loss of each step, where it is one number.
        broken: The weights that were not finite before the first step.
    """

    watched: dict[str, Tensor]
    gradients: dict[int, float] = field(default_factory=dict)
    later: dict[int, float] = field(default_factory=dict)
    elsewhere: dict[int, float] = field(default_factory=dict)
    reach: Reach | None = None
    cuts: dict[str, Cut] = field(default_factory=dict)
    movement: dict[int, MovementRow] = field(default_factory=dict)
    state: dict[str, bool] = field(default_factory=dict)
    called: bool = False
    losses: list[float] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)

    def zero(self) -> bool:
        """Whether some weight has a path, and got no gradient so far."""
        lost = set(self.reach.unreached) | set(self.reach.unseen) if self.reach else set()
        return any(
            g == 0.0 and not self.later.get(key) and self.name_of.get(key) not in lost
            for key, g in self.gradients.items()
        )

    @property
    def name_of(self) -> dict[int, str]:
        """The names by id."""
        return {id(value): name for name, value in self.watched.items()}


def gather(subject: Subject, watched: dict[str, Tensor], steps: int) -> Evidence:
    """Run the steps and look; everything is as before when it returns."""
    evidence = Evidence(watched)
    with subject.mode():
        gradients = _enter(subject, evidence)
        with rehearsal(subject.cells) as kept, _position_kept(subject):
            _run(subject, evidence, kept, steps)
            if gradients is not None and evidence.zero():
                evidence.later = gradients.norms(subject.batches[0])
            kept.restore()
            if gradients is not None and evidence.zero():
                _look_elsewhere(subject, evidence, gradients, kept)
        lost = [*evidence.reach.unreached, *evidence.reach.unseen] if evidence.reach else []
        if lost and subject.loss is not None and isinstance(gradients, LossGradients):
            evidence.cuts = cuts(subject.loss, lost, subject.network, subject.batches[0])
    return evidence


def _enter(subject: Subject, evidence: Evidence) -> Gradients | None:
    """Take a first look at the gradients; let a TrainStep go to the stage of its next call.

    That call would look for the reach, which the graph of the gradients tells as well.
    """
    step = subject.holder
    if not isinstance(step, TrainStep):
        return _first_look(subject, evidence)
    found: list[Gradients | None] = []

    def look() -> Reach:
        found.append(_first_look(subject, evidence))
        assert evidence.reach is not None
        return evidence.reach

    enter_as_next_call(step, subject.batches[0], look)
    subject.optimizers[:] = [step.optimizer]
    return found[0]


def _position_kept(subject: Subject) -> AbstractContextManager[None]:
    return position_kept(subject.holder) if isinstance(subject.holder, TrainStep) else nullcontext()


def _first_look(subject: Subject, evidence: Evidence) -> Gradients | None:
    """Take the gradients on the first batch in the best way that works here."""
    inputs = subject.batches[0]
    for way in _ways(subject):
        try:
            with rehearsal(subject.cells):
                gradients = way(subject)
                evidence.gradients = gradients.norms(inputs)
                if isinstance(gradients, LossGradients) or 0.0 in evidence.gradients.values():
                    evidence.reach = gradients.reach(inputs)
        # MindSpore raises errors of many kinds for what a graph cannot take, and the next way may
        except Exception as error:
            if isinstance(subject.holder, TrainStep):
                raise
            logger.debug("no gradients by %s: %s", way.__name__, error)
            evidence.gradients = {}
        else:
            return gradients
    return None


def _ways(subject: Subject) -> list[Callable[[Subject], Gradients]]:
    ways = [_by_loss] if subject.loss is not None else []
    return [*ways, _by_step if subject.holder is not None else _by_function]


def _by_loss(subject: Subject) -> Gradients:
    assert subject.loss is not None
    return LossGradients(subject.loss)


def _by_step(subject: Subject) -> Gradients:
    assert subject.holder is not None
    return StepGradients(subject.holder, subject.optimizers)


def _by_function(subject: Subject) -> Gradients:
    return FunctionGradients(subject.run, subject.optimizers)


def _run(subject: Subject, evidence: Evidence, kept: Rehearsal, steps: int) -> None:
    floats = {k: v for k, v in evidence.watched.items() if v.dtype in mstype.float_type}
    evidence.broken = {id(v) for v in floats.values() if not np.isfinite(copy_of(v)).all()}
    for step in range(steps):
        evidence.losses += _number(subject.run(*subject.batches[step % len(subject.batches)]))
    evidence.movement = {
        id(v): kept.movement_of(v, name) for name, v in evidence.watched.items() if kept.knows(v)
    }
    weights = [p for o in subject.optimizers for p in o.parameters]
    names = {str(p.name) for p in weights}
    for optimizer in subject.optimizers:
        for state in own_parameters(optimizer, weights):
            moved = kept.has_moved(state)
            evidence.called |= moved
            owner = owner_of(str(state.name), names)
            if owner is not None:
                evidence.state[owner] = evidence.state.get(owner, False) or moved
    evidence.called |= any(kept.has_moved(p) for p in weights)


def _number(out: object) -> list[float]:
    if isinstance(out, (tuple, list)) and out:
        out = out[0]
    if isinstance(out, Tensor) and out.dtype in mstype.float_type:
        return [float(copy_of(out).sum())]
    return []


def _look_elsewhere(
    subject: Subject, evidence: Evidence, gradients: Gradients, kept: Rehearsal
) -> None:
    """Take gradients on random inputs, at the weights as they are."""
    for trial in range(4):
        rng = np.random.default_rng(trial // 2)
        given = random_inputs(subject.batches[0], rng, 1 if trial % 2 else -1)
        with silence():
            found = gradients.norms(given)
        kept.restore()
        for key, norm in found.items():
            evidence.elsewhere[key] = max(evidence.elsewhere.get(key, 0.0), norm)


def watched_in(subject: Subject) -> dict[str, Tensor]:
    """Name the parameters and buffers that get a row; the state of optimizers gets none."""
    weights = [p for o in subject.optimizers for p in o.parameters]
    state = {id(p) for o in subject.optimizers for p in own_parameters(o, weights)}
    held = {id(p) for p in weights}
    own = _own_state(subject, held)
    parameters = {
        str(p.name): p
        for p in subject.network.get_parameters()
        if id(p) in held or id(p) not in state | own
    }
    buffers = {
        f"{path}.{key}".lstrip("."): buffer
        for path, cell in cell_paths(subject.network)
        for key, buffer in (layers_of(cell)[-1]._buffers or {}).items()
        if buffer is not None
    }
    return {**parameters, **buffers}


def _own_state(subject: Subject, held: set[int]) -> set[int]:
    """Return what an unknown train cell itself keeps, such as sums of gradients."""
    if subject.network is not subject.holder:
        return set()
    return {id(p) for p in subject.network._params.values() if id(p) not in held}
