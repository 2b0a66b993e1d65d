"""The evidence: what real steps and the graph of the gradients say of each parameter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore import dtype as mstype

from msgrad.auditing._cuts import Cut, cuts
from msgrad.auditing._gradients import FunctionGradients, Gradients, LossGradients, StepGradients
from msgrad.auditing._subject import Subject, optimizers_of
from msgrad.network import (
    MovementRow,
    Reach,
    Rollback,
    cell_paths,
    copy_of,
    core_of,
    random_inputs,
    rolled_back,
    silence,
    write,
)
from msgrad.optim import own_parameters, owner_of
from msgrad.training import TrainStep, raise_refusal

logger = logging.getLogger("msgrad")
# Pairs of random inputs, of both signs, that are tried where a gradient is zero.
_ELSEWHERE = 2


@dataclass
class Observations:
    """What was seen, by the ids of weights: MindSpore renames some while it compiles a step.

    Attributes:
        gradients: Norms before the steps; empty where they could not be taken.
        received: Norms as they came to the optimizer, where a train cell may change them.
        later: Norms after the steps, where one was zero before them.
        blank: The weights that are all zero and have a gradient, as those of a new adapter.
        filled: Norms with other values in the blank weights, where one was zero twice.
        elsewhere: Largest norms on random inputs, where one was zero twice.
        paths: "reached", "unreached" or "unseen", as `Reach` says.
        cuts: What cuts the gradient of what it cannot get to.
        movement: How far each went.
        state: Whether the optimizer state of a weight moved.
        called: Whether an optimizer was called.
        losses: The loss of each step, where it is one number.
        elements: The number of elements of the loss; 0 where it is no Tensor.
        several: Whether a step returned several values.
        summed: Whether the optimizer gets the gradient of all that the network returns.
        broken: The weights that were not finite before the first step.
        names: The names of the weights of the optimizers before anything was compiled.
    """

    gradients: dict[int, float] = field(default_factory=dict)
    received: dict[int, float] = field(default_factory=dict)
    later: dict[int, float] = field(default_factory=dict)
    blank: list[str] = field(default_factory=list)
    filled: dict[int, float] = field(default_factory=dict)
    elsewhere: dict[int, float] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    cuts: dict[int, Cut] = field(default_factory=dict)
    movement: dict[int, MovementRow] = field(default_factory=dict)
    state: dict[int, bool] = field(default_factory=dict)
    called: bool = False
    losses: list[float] = field(default_factory=list)
    elements: int = 0
    several: bool = False
    summed: bool = False
    broken: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def zero(self) -> bool:
        """Whether some weight has a path, and got no gradient so far."""
        return any(
            norm == 0.0
            and not (self.later.get(key) or self.filled.get(key))
            and self.paths.get(key) == "reached"
            for key, norm in self.gradients.items()
        )


def gather(subject: Subject, watched: dict[str, Tensor], steps: int) -> Observations:
    """Run the steps and look; everything is as before when it returns."""
    observations = Observations(
        names={str(p.name) for o in subject.optimizers for p in o.parameters}
    )
    with subject.mode():
        gradients = _enter(subject, observations)
        with rolled_back(subject.cells, subject.run) as kept, _position_kept(subject):
            _run(subject, observations, kept, watched, steps)
            if gradients is not None and observations.zero():
                observations.later = gradients.norms(subject.batches[0])
            kept.restore()
            if isinstance(gradients, LossGradients):
                observations.summed = _is_summed(subject, observations, gradients)
                kept.restore()
            if gradients is not None and observations.zero():
                _fill(subject, observations, gradients)
                kept.restore()
            if gradients is not None and observations.zero():
                _look_elsewhere(subject, observations, gradients, kept)
        if gradients is not None:
            gradients.forget()
        if subject.loss is not None and isinstance(gradients, LossGradients):
            observations.cuts = _cuts(subject.loss, subject, observations, gradients.weights)
    return observations


def _cuts(
    loss: nn.Cell, subject: Subject, observations: Observations, weights: Iterable[Parameter]
) -> dict[int, Cut]:
    lost = {str(p.name): id(p) for p in weights if observations.paths[id(p)] != "reached"}
    # statistics never have a gradient, and nobody asks why
    flags = {id(p): p.requires_grad for p in weights}
    wanted = [name for name, key in lost.items() if flags[key]]
    if not wanted:
        return {}
    found = cuts(loss, wanted, subject.network, subject.batches[0])
    return {lost[name]: cut for name, cut in found.items()}


def _enter(subject: Subject, observations: Observations) -> Gradients | None:
    """Take a first look at the gradients; let a TrainStep go to the stage of its next call.

    That call would look for the reach, which the graph of the gradients tells as well.
    """
    step = subject.holder
    if not isinstance(step, TrainStep):
        gradients = _first_look(subject, observations)[0]
        if isinstance(gradients, LossGradients) and _is_foreign(step):
            _receive(subject, observations)
        return gradients
    found: list[Gradients | None] = []

    def look() -> Reach:
        gradients, reach = _first_look(subject, observations)
        found.append(gradients)
        assert reach is not None
        return reach

    step.prepare_with(look, *subject.batches[0])
    subject.optimizers[:] = optimizers_of(step)
    return found[0]


def _is_foreign(step: nn.Cell | None) -> bool:
    """Whether a step may hand other gradients to the optimizer than those of the loss."""
    return type(step) is not nn.TrainOneStepCell


def _first_look(
    subject: Subject, observations: Observations
) -> tuple[Gradients | None, Reach | None]:
    """Take the gradients on the first batch in the best way that works here."""
    for way in _ways(subject):
        try:
            with rolled_back(subject.cells, subject.run):
                gradients = way(subject)
                observations.gradients = gradients.norms(subject.batches[0])
                reach = None
                if isinstance(gradients, LossGradients) or 0.0 in observations.gradients.values():
                    reach = gradients.reach(subject.batches[0])
        # MindSpore raises errors of many kinds for what a graph cannot take, and the next way may
        except Exception as error:
            if isinstance(subject.holder, TrainStep):
                raise_refusal(error)
                raise
            logger.debug("no gradients by %s: %s", way.__name__, error)
        else:
            observations.paths = _paths(gradients, observations.gradients, reach)
            return gradients, reach
    observations.gradients = {}
    return None, None


def _paths(gradients: Gradients, norms: dict[int, float], reach: Reach | None) -> dict[int, str]:
    if reach is None:
        return dict.fromkeys(norms, "reached")
    words = {
        **dict.fromkeys(reach.reached, "reached"),
        **dict.fromkeys(reach.unseen, "unseen"),
        **dict.fromkeys(reach.unreached, "unreached"),
    }
    return {id(p): words[str(p.name)] for p in gradients.weights}


def _receive(subject: Subject, observations: Observations) -> None:
    """See what comes to the optimizer, where that works."""
    way = _ways(subject)[-1]
    try:
        with rolled_back(subject.cells, subject.run):
            gradients = way(subject)
            observations.received = gradients.norms(subject.batches[0])
            gradients.forget()
    # the gradients of the loss are known; without these a mask on them goes unseen
    except Exception as error:
        logger.debug("what comes to the optimizer cannot be seen: %s", error)


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


def _position_kept(subject: Subject) -> AbstractContextManager[None]:
    return (
        subject.holder.position_kept() if isinstance(subject.holder, TrainStep) else nullcontext()
    )


def _run(
    subject: Subject,
    observations: Observations,
    kept: Rollback,
    watched: dict[str, Tensor],
    steps: int,
) -> None:
    floats = [v for v in watched.values() if v.dtype in mstype.float_type]
    observations.broken = {id(v) for v in floats if not np.isfinite(copy_of(v)).all()}
    weights = {str(p.name): p for o in subject.optimizers for p in o.parameters}
    for step in range(steps):
        out: Any = subject.run(*subject.batches[step % len(subject.batches)])
        loss: Any = out[0] if isinstance(out, (tuple, list)) and out else out
        observations.several = loss is not out
        if isinstance(loss, Tensor) and loss.dtype in mstype.float_type:
            observations.elements = loss.size
            observations.losses.append(float(copy_of(loss).sum()))
    observations.movement = {
        id(v): kept.movement_of(v, name) for name, v in watched.items() if kept.knows(v)
    }
    for optimizer in subject.optimizers:
        for state in own_parameters(optimizer, weights.values()):
            moved = kept.has_moved(state)
            observations.called |= moved
            owner = weights.get(owner_of(str(state.name), weights) or "")
            if owner is not None:
                observations.state[id(owner)] = observations.state.get(id(owner), False) or moved
    observations.called |= any(kept.has_moved(p) for p in weights.values())


def _is_summed(subject: Subject, observations: Observations, gradients: LossGradients) -> bool:
    """Whether the gradient is that of the loss and of what the network returns beside it."""
    if isinstance(subject.holder, TrainStep):
        return False
    if not observations.received and observations.several:
        _receive(subject, observations)
    received = observations.received
    masked = any(not norm and observations.gradients.get(k) for k, norm in received.items())
    if not received or masked or _alike(received, observations.gradients):
        return False
    try:
        of_all = gradients.norms_of_all(subject.batches[0])
    # what else is returned may be no float
    except Exception as error:
        logger.debug("no gradients of all that is returned: %s", error)
        return False
    return _alike(received, of_all) and not _alike(of_all, observations.gradients)


def _alike(norms: dict[int, float], others: dict[int, float]) -> bool:
    """Whether norms are equal, or differ by one factor: a loss scale, clipping by the norm."""
    mine, other = np.array([(norms[key], others[key]) for key in norms if key in others]).T
    factor = np.linalg.norm(mine) / max(np.linalg.norm(other), np.finfo(float).tiny)
    return np.allclose(mine, (factor if len(mine) > 1 else 1.0) * other, 1e-3)


def _fill(subject: Subject, observations: Observations, gradients: Gradients) -> None:
    """Take gradients as they will be when weights that begin at zero have moved.

    What stands before such a weight has no gradient until then, and lacks nothing.
    """
    rng = np.random.default_rng(0)
    blank = [
        p for p in gradients.weights if observations.gradients.get(id(p)) and not copy_of(p).any()
    ]
    if not blank:
        return
    observations.blank = [str(p.name) for p in blank]
    for parameter in blank:
        write(parameter, rng.standard_normal(parameter.shape).astype(copy_of(parameter).dtype))
    with silence():
        observations.filled = gradients.norms(subject.batches[0])


def _look_elsewhere(
    subject: Subject, observations: Observations, gradients: Gradients, kept: Rollback
) -> None:
    """Take gradients on random inputs, at the weights as they are."""
    for trial in range(2 * _ELSEWHERE):
        rng = np.random.default_rng(trial // 2)
        given = random_inputs(subject.batches[0], rng, 1 if trial % 2 else -1)
        with silence():
            found = gradients.norms(given)
        kept.restore()
        for key, norm in found.items():
            observations.elsewhere[key] = max(observations.elsewhere.get(key, 0.0), norm)


def watched_in(subject: Subject) -> dict[str, Tensor]:
    """Name the parameters and buffers that get a row; the state of optimizers gets none."""
    weights = [p for o in subject.optimizers for p in o.parameters]
    held = {id(p) for p in weights}
    state = {id(p) for o in subject.optimizers for p in own_parameters(o, weights)}
    if subject.network is subject.holder:
        # what an unknown train cell keeps itself, such as sums of gradients
        state |= {id(p) for p in subject.network._params.values()}
    parameters = {
        str(p.name): p
        for p in subject.network.get_parameters()
        if id(p) in held or id(p) not in state
    }
    buffers = {
        f"{path}.{key}".lstrip("."): buffer
        for path, cell in cell_paths(subject.network)
        for key, buffer in (core_of(cell)._buffers or {}).items()
        if buffer is not None
    }
    return {**parameters, **buffers}
