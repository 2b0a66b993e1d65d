"""The explanation of one parameter: all that decides about it now, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import mindspore as ms
from mindspore import Parameter, nn

from msgrad.auditing._misplaced_flags import misplaced_flags
from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import Record, cannot_hold, forward_writes, is_held, is_norm, records_of
from msgrad.network import inner_network, one_walk, places, select_one
from msgrad.optim import optimizers_in, rates_by_weight
from msgrad.training import TrainStep
from msgrad.updates import WeightUpdates
from msgrad.wrappers import wrapped


class Rules(Protocol):
    """What an explanation asks of a plan."""

    def rules_of(self, net: nn.Cell, name: str) -> Sequence[str]:
        """Say what each rule that names a parameter says, in order; the last match decides."""
        ...


@dataclass(frozen=True)
class Reason:
    """One thing that has a say about a parameter.

    Attributes:
        kind: "model", "flag", "freeze", "plan", "step", "optimizer", "hold", "update", "wrapper",
            "layer" or "misplaced flag".
        text: What it says, and what it overrides.
        decides: Whether this is what decides that the parameter moves or stays.

    Examples:
        >>> Reason("model", "made it trainable").decides
        False
    """

    kind: str
    text: str
    decides: bool = False


@dataclass(frozen=True, repr=False)
class Explanation:
    """All that decides about one parameter; printed, a line each, what decides marked with ``>``.

    Attributes:
        name: `Parameter.name`.
        paths: Where it stands in the network.
        shape: Its shape.
        moves: Whether it may move.
        reasons: In order: the model, flags and freezes, the plan, the step and its optimizer, then
            what acts on its gradient and on its layer. One of them decides.

    Examples:
        >>> Explanation("w", ("w",), (2,), True, (Reason("model", "made it trainable", True),))
        w (2,) may move
        > model: made it trainable
    """

    name: str
    paths: tuple[str, ...]
    shape: tuple[int, ...]
    moves: bool
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> Reason:
        """What decides."""
        return next(reason for reason in self.reasons if reason.decides)

    def __repr__(self) -> str:
        also = [path for path in self.paths if path != self.name]
        at = f", at {' and '.join(also)}," if also else ""
        fate = "may move" if self.moves else "stays"
        lines = [f"{'>' if r.decides else ' '} {r.kind}: {r.text}" for r in self.reasons]
        return "\n".join([f"{self.name} {self.shape}{at} {fate}", *lines])


def explain(
    net_or_step: nn.Cell | ms.Model, name: str | Parameter, plan: Rules | None = None
) -> Explanation:
    """Say what decides now whether a parameter moves: rules in order, and what each overrides.

    Nothing is run. Whether a gradient gets to it is known from a `TrainStep` that has been called;
    what cuts the gradient off, `audit` finds.

    Args:
        net_or_step: Network, or better what trains it: a `TrainStep`, a train cell or a Model.
        name: Name of the parameter, or a path to it.
        plan: The plan whose rules are to be told as well.

    Returns:
        The explanation; printed, it is one line for each reason.

    Raises:
        NoMatchError: There is no parameter of this name.
        ArgumentError: The name is that of several.
        ArgumentTypeError: ``net_or_step`` is no Cell, or ``plan`` no Plan.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0"), mg.freeze(net, "*.bias")
        >>> mg.explain(net, "0.bias")
        0.bias (8,) stays
          model: made it trainable
        > freeze: freeze('0') keeps it, over the model
          freeze: freeze('*.bias') keeps it as well
    """
    step = net_or_step.train_network if isinstance(net_or_step, ms.Model) else net_or_step
    if not isinstance(step, nn.Cell):
        raise ArgumentTypeError(f"net_or_step {step!r} is no Cell; give the network or its step")
    if plan is not None and not hasattr(plan, "rules_of"):
        raise ArgumentTypeError(f"plan {plan!r} is no Plan; make one with mg.Plan.from_dict")
    if isinstance(step, TrainStep):
        # to the stage of now; a step with nothing left to train keeps the optimizer that it has
        with suppress(ArgumentError):
            step.prepare()
    with one_walk():
        optimizers = optimizers_in(step)
        told = _Told((step._cells.get("network") if optimizers else None) or step, name)
        reasons = [
            *told.by_flags(),
            *told.by_plan(plan),
            *told.by_step(step, optimizers),
            *told.by_wrappers(),
            *told.by_layers(),
            *told.by_mistake(),
            *told.by_forward(),
        ]
        moves = told.may_move(optimizers)
    last = max(number for number, reason in enumerate(reasons) if reason.decides)
    return Explanation(
        told.name,
        tuple(place.path for place in told.places),
        tuple(told.parameter.shape),
        moves,
        tuple(replace(reason, decides=number == last) for number, reason in enumerate(reasons)),
    )


class _Told:
    """Tells of one parameter of a network; of the reasons that decide, the last one does."""

    def __init__(self, net: nn.Cell, name: str | Parameter) -> None:
        self.parameter = select_one(net, name)
        self.name = str(self.parameter.name)
        self.net = inner_network(net)
        self.records = records_of(self.net)
        self.record = self.records[id(self.parameter)]
        self.written = forward_writes(self.net).get(id(self.parameter), "")
        self.places = [place for place in places(self.net) if place.parameter is self.parameter]

    def may_move(self, optimizers: Sequence[nn.Cell]) -> bool:
        """Whether it may move: with optimizers, where one holds it and does not keep it."""
        if self.record.statistic:
            return not all(is_held(place.owner) for place in self.places)
        if self.written:
            return True
        if not optimizers:
            return self.record.trains
        return any(self._is_in(o) and not _keeps(o, self.name) for o in optimizers)

    def _is_in(self, optimizer: nn.Cell) -> bool:
        return any(parameter is self.parameter for parameter in optimizer.parameters)

    def by_flags(self) -> Iterator[Reason]:
        """Tell of the model's design, the flag, and the freezes."""
        record = self.record
        if not record.can_train:
            what = "a running statistic" if record.statistic else "an integer"
            yield Reason("model", f"made it {what}, which no optimizer may move", True)
            return
        off = "requires_grad was False before msgrad saw it; unfreeze(…, force=True) turns it on"
        yield Reason("model", "made it trainable" if record.flag_at_first else off, True)
        if record.own_flag != record.flag_at_first:
            yield Reason("flag", f"requires_grad = {record.own_flag} by hand, over the model", True)
        over = "the flag" if record.own_flag != record.flag_at_first else "the model"
        for number, claim in enumerate(record.claims):
            how = " as well" if number or not record.own_flag else f", over {over}"
            yield Reason("freeze", f"{claim.patterns} keeps it{how}", not number)

    def by_forward(self) -> Iterator[Reason]:
        """Tell of a cell that writes it itself, which no freeze holds."""
        if self.written:
            yield Reason("forward pass", f"{self.written} writes it, frozen or not", True)

    def by_plan(self, plan: Rules | None) -> Iterator[Reason]:
        """Tell what the rules of a plan say of it."""
        for text in plan.rules_of(self.net, self.name) if plan is not None else ():
            yield Reason("plan", text)

    def by_step(self, step: nn.Cell, optimizers: Sequence[nn.Cell]) -> Iterator[Reason]:
        """Tell what a step does with it, and its optimizers."""
        if not optimizers:
            return
        holding = [optimizer for optimizer in optimizers if self._is_in(optimizer)]
        if isinstance(step, TrainStep):
            yield from _by_train_step(step, self.record, held=bool(holding))
        elif self.record.trains and not holding:
            how = "it was made without it, or before the flag was turned on"
            yield Reason("optimizer", f"no optimizer holds it: {how}", True)
        for optimizer in holding:
            yield from self._by_optimizer(optimizer)
        for update in getattr(step, "updates", ()):
            if isinstance(update, WeightUpdates) and self.name in update.names:
                yield Reason("update", f"a rule changes it {update.when.replace('_', ' ')}")

    def _by_optimizer(self, optimizer: nn.Cell) -> Iterator[Reason]:
        kind = type(getattr(optimizer, "optimizer", optimizer)).__name__
        figures = ""
        # an optimizer of the user's own need not have the methods
        with suppress(AttributeError, TypeError, ValueError):
            rates = rates_by_weight(optimizer)[id(self.parameter)]
            figures = f", rate {rates.lr:g}, weight decay {rates.weight_decay:g}"
        stale = "" if self.record.trains else ": it was made before that, and moves it all the same"
        yield Reason("optimizer", f"{kind} holds it{figures}{stale}", bool(stale))
        if _keeps(optimizer, self.name):
            yield Reason("hold", "HoldOptimizer.hold keeps it, over the optimizer", True)
        rows = getattr(optimizer, "held_rows", {}).get(self.name)
        if rows:
            yield Reason("hold", f"HoldOptimizer.hold_rows keeps its rows {rows}")

    def by_wrappers(self) -> Iterator[Reason]:
        """Tell of the wrappers that it stands in."""
        for path, wrapper in wrapped(self.net):
            if any(_is_in(place.path, path) for place in self.places):
                what = f"{type(wrapper).__name__}({wrapper.extend_repr()})"
                yield Reason("wrapper", f"{what} at {path!r}{_effect(wrapper)}")

    def by_layers(self) -> Iterator[Reason]:
        """Tell how the layers that own it behave."""
        for owner in {id(place.owner): place.owner for place in self.places}.values():
            text = _behaviour(owner, self.records)
            if text:
                decides = self.record.statistic
                yield Reason("layer", f"{type(owner).__name__} {text}", decides)

    def by_mistake(self) -> Iterator[Reason]:
        """Tell of flags that were meant for it and set where nothing reads them."""
        records = self.records.values()
        moving = {str(record.parameter.name) for record in records if record.trains}
        for finding in misplaced_flags(self.net, moving):
            if self.name in finding.names:
                yield Reason(finding.kind, finding.message)


def _is_in(path: str, cell: str) -> bool:
    return not cell or path.startswith(f"{cell}.")


def _keeps(optimizer: nn.Cell, name: str) -> bool:
    return name in getattr(optimizer, "held", ())


def _by_train_step(step: TrainStep, record: Record, *, held: bool) -> Iterator[Reason]:
    if not record.trains:
        return
    if held:
        if not step.knows_reach:
            yield Reason("step", "whether a gradient reaches it is found at the first call")
    elif not step.takes(record):
        yield Reason("step", "trainable= leaves it out, over the model", True)
    else:
        why = "no gradient reaches it, so TrainStep leaves it out; audit names what cuts it off"
        yield Reason("step", why, True)


def _effect(wrapper: nn.Cell) -> str:
    """Say what a wrapper of msgrad's own does to the gradient of what it wraps."""
    at = wrapper.__dict__.get("_at")
    if at is None:
        return ""
    if at == "input":
        return ": acts on what stands before it, not on it"
    return ": acts on its gradient"


def _behaviour(owner: nn.Cell, records: Mapping[int, Record]) -> str:
    """Say how a layer behaves that keeps statistics, or that nothing can hold."""
    why = cannot_hold(owner)
    if why:
        return f"behaves as in training, frozen or not: {why}"
    if not is_norm(owner):
        return ""
    if not is_held(owner):
        return "adapts its running statistics in training"
    own = [records[id(p)] for p in owner._params.values() if p is not None]
    by = dict.fromkeys(claim.patterns for record in own for claim in record.claims)
    whole = f"is wholly frozen by {', '.join(by)}" if by else "stands in a wholly frozen cell"
    return f"{whole}: it normalises with its running statistics and keeps them"
