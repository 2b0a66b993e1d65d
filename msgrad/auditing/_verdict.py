"""The verdict on one parameter: from facts alone, so that it can be read and tested without a net.

Two questions: is it meant to move, and did it. Meant to stay is what a freeze claims, what its flag
turns off, and what the step leaves out on purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from msgrad.network import TRIALS


class Verdict(NamedTuple):
    """The rule that decides a parameter, the verdict on it, and why in one sentence."""

    rule: str
    verdict: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one parameter after some steps.

    Attributes:
        kind: "weight", "statistic" of a norm layer, "integer", or "buffer".
        flag: `requires_grad`.
        claims: The freezes that claim it, as they were called; "" for none.
        left_out: What else keeps it on purpose, such as ``trainable='generator'``; "" for nothing.
        hold: Whether a `HoldOptimizer` holds it.
        by_hand: Whether a statistic belongs to a layer whose weights are frozen by their flags.
        adapting: Whether a statistic was left to adapt by ``statistics=False``.
        in_optimizer: Whether an optimizer holds it.
        by_step: Whether the step took it out of the optimizer because no gradient reaches it.
        replaced: Whether the optimizer holds another Parameter of its name.
        lr: Its rate; None where there is no optimizer.
        decay: Its weight decay, likewise.
        path: Whether a gradient has a path to it: "reached", "unreached", "unseen" in the trials,
            or "unknown".
        cut: What cuts the path, or hides it.
        stopped: Whether that is a stop of msgrad's own, so that it is meant.
        gradient: Norm of the gradient before the steps; None where it is unknown.
        received: Norm as it comes to the optimizer; None where that is the same or unknown.
        later: Norm after the steps; None where it was not asked for.
        behind: The weights that begin at zero, through which a gradient comes when they have moved.
        elsewhere: Whether random inputs gave it a gradient, where this batch did not.
        ignored: Whether its flag makes the step itself take a zero gradient (PYNATIVE_MODE).
        latched: Whether MindSpore keeps it at a zero gradient (2.7 in PYNATIVE_MODE).
        broken: Why it, or its gradient, is not finite; "" where all is.
        moved: How far it moved, as in "it moved 0.1"; "" where no bit changed.
        called: Whether an optimizer was called at all.
        update: The weight update that changes it; "" for none.
        remark: What may explain that it stayed, or that its gradient is zero.
    """

    kind: str = "weight"
    flag: bool = True
    claims: str = ""
    left_out: str = ""
    hold: bool = False
    by_hand: bool = False
    adapting: bool = False
    in_optimizer: bool = True
    by_step: bool = False
    replaced: bool = False
    lr: float | None = None
    decay: float | None = None
    path: str = "reached"
    cut: str = ""
    stopped: bool = False
    gradient: float | None = None
    received: float | None = None
    later: float | None = None
    behind: str = ""
    elsewhere: bool = False
    ignored: bool = False
    latched: bool = False
    broken: str = ""
    moved: str = ""
    called: bool = True
    update: str = ""
    remark: str = ""

    @property
    def no_gradient(self) -> bool:
        """Whether no step gave it a gradient."""
        if self.ignored or self.latched or self.received == 0.0:
            return True
        known = [g for g in (self.gradient, self.later) if g is not None]
        return bool(known) and not any(known)

    @property
    def withheld(self) -> bool:
        """Whether the train cell keeps its gradient from the optimizer."""
        return self.received == 0.0 and bool(self.gradient)


def verdict_on(facts: Facts) -> Verdict:
    """Return the verdict on one parameter."""
    return Verdict(_rule(facts), *_outcome(facts))


def _outcome(facts: Facts) -> tuple[str, str]:
    if facts.broken:
        return "not finite", facts.broken
    if facts.kind == "statistic":
        return _on_statistic(facts)
    if facts.kind in ("integer", "buffer"):
        moves = f"{facts.moved} by the forward pass" if facts.moved else "no optimizer moves it"
        return "trained" if facts.moved else "held", f"{facts.kind}, {moves}"
    if facts.claims or facts.left_out or facts.hold or not facts.flag:
        return _on_meant_to_stay(facts)
    return _on_meant_to_move(facts)


def _rule(facts: Facts) -> str:
    """Name what decides whether it may move."""
    if facts.claims and facts.kind in ("weight", "statistic"):
        return facts.claims
    if facts.kind != "weight":
        return facts.kind
    if facts.left_out or facts.hold:
        return facts.left_out or "hold"
    if not facts.flag:
        return "requires_grad"
    return "unreached" if facts.by_step else ""


def _on_statistic(facts: Facts) -> tuple[str, str]:
    if facts.in_optimizer:
        why = "running statistic that the optimizer holds, since its requires_grad is True; "
        return "leaks", f"{why}{facts.moved or 'it did not move yet'}"
    if not facts.moved:
        by = f"frozen by {facts.claims}" if facts.claims else "running statistic, did not move"
        return "held", by
    if facts.adapting:
        how = "adapts while its layer is frozen, as statistics=False asks"
        return "trained", f"running statistic that {how}; {facts.moved}"
    if facts.claims:
        how = "by the forward pass of a step that was compiled before the freeze; use TrainStep"
        return "leaks", f"frozen by {facts.claims}, yet {facts.moved} {how}"
    if facts.by_hand:
        how = "by the forward pass; freeze the layer with mg.freeze to hold it"
        why = "running statistic of a layer whose weights are frozen by their flags, yet"
        return "leaks", f"{why} {facts.moved} {how}"
    return "trained", f"running statistic, {facts.moved} by the forward pass"


def _on_meant_to_stay(facts: Facts) -> tuple[str, str]:
    what = _what_holds(facts)
    if facts.moved and facts.update:
        return "trained", f"{what}, and changed by {facts.update} on demand"
    if facts.moved and facts.in_optimizer:
        return "leaks", f"{what}, yet {facts.moved} {_agent(facts)}"
    if facts.moved and (facts.claims or facts.left_out.startswith("held=")):
        how = "by an assignment in the step: no optimizer given here holds it"
        return "leaks", f"{what}, yet {facts.moved} {how}"
    if facts.moved:
        how = "by an assignment of the model's or the step's own, not by the optimizer"
        return "trained", f"{what}; {facts.moved} {how}"
    if facts.in_optimizer and not facts.hold:
        risk = "the optimizer holds it still: decay or momentum would move it"
        return "stale", f"{what}, but {risk}; make the optimizer after freezing"
    return "held", what


def _what_holds(facts: Facts) -> str:
    if facts.claims:
        return f"frozen by {facts.claims}"
    if facts.hold:
        return "held by the HoldOptimizer"
    if facts.left_out:
        return f"left out by {facts.left_out}"
    return "requires_grad is False"


def _agent(facts: Facts) -> str:
    """Say what moved something that is meant to stay or gets no gradient."""
    if not facts.no_gradient and facts.path != "unreached":
        return "by a stale optimizer, which was made before and still takes its gradient"
    if facts.decay:
        return f"by weight decay {facts.decay:g}"
    if facts.in_optimizer:
        return "by momentum, the optimizer's state from earlier steps"
    return "by an assignment in the step"


def _on_meant_to_move(facts: Facts) -> tuple[str, str]:
    if not facts.in_optimizer:
        return _outside(facts)
    if facts.path in ("unreached", "unseen") and (facts.gradient is None or facts.no_gradient):
        why = _why_unreached(facts)
        if facts.moved:
            return "leaks", f"{why}, yet {facts.moved} {_agent(facts)}"
        return "unreached", why
    if facts.latched:
        why = "MindSpore keeps it at a zero gradient, since its flag was off when a step first ran"
        also = f"; {facts.moved} {_agent(facts)}" if facts.moved else ""
        return "still", why + also
    if facts.withheld:
        why = f"{_has_gradient(facts)}, but the train cell hands 0 to the optimizer"
        if facts.moved:
            return "leaks", f"{why}, yet {facts.moved} {_agent(facts)}"
        return "still", why
    if facts.gradient == 0.0 and (facts.later or facts.behind) and not facts.moved:
        return "zero", _why_zero_at_first(facts)
    if facts.no_gradient:
        return _on_zero(facts)
    if not facts.moved:
        return "still", f"{_has_gradient(facts)}, but no bit changed{_why_still(facts)}"
    return "trained", facts.moved


def _outside(facts: Facts) -> tuple[str, str]:
    """Return the verdict on what is meant to move and is in no optimizer."""
    if facts.by_step and facts.stopped:
        return "held", f"{_why_unreached(facts)}, so TrainStep leaves it out"
    if facts.by_step:
        remedy = "TrainStep leaves it out; freeze it if that is meant"
        return "unreached", f"{_why_unreached(facts)}; {remedy}"
    if facts.moved:
        by = facts.update or "an assignment in the step"
        return "trained", f"{facts.moved} by {by}, the optimizer does not hold it"
    if facts.replaced:
        how = "the optimizer holds another Parameter of that name, replaced since it was made"
        return "stale", f"requires_grad is True, but {how}"
    how = "no optimizer holds it: it was made without it, or before the flag was turned on"
    return "stale", f"requires_grad is True, but {how}"


def _why_unreached(facts: Facts) -> str:
    cut = f": {facts.cut}" if facts.cut else ""
    if facts.path == "unseen":
        return f"whether a gradient reaches it is not known, none seen in {TRIALS} trials{cut}"
    return f"no gradient reaches it{cut}"


def _why_zero_at_first(facts: Facts) -> str:
    """Say of what stands before a weight that begins at zero that it waits for it."""
    after = f", and {facts.later:.2g} after the steps" if facts.later else ""
    cause = f", as {facts.behind} behind it begins at zero" if facts.behind else ""
    return f"its gradient is 0 in this step{after}{cause}; give more steps to see it move"


def _on_zero(facts: Facts) -> tuple[str, str]:
    also = f"; {facts.remark}" if facts.remark else ""
    also += f"; {facts.moved} {_agent(facts)}" if facts.moved else ""
    if facts.elsewhere:
        why = "there is a path, but the gradient is zero on this batch; random inputs give one"
        return "zero", f"{why}{also}"
    why = "there is a path, but the gradient is zero on this batch and on random inputs"
    return "dead", f"{why}: nothing can get through at these weights{also}"


def _has_gradient(facts: Facts) -> str:
    if facts.gradient is None or math.isnan(facts.gradient):
        return "in the optimizer"
    return f"the gradient is {max(facts.gradient, facts.later or 0.0):.2g}"


def _why_still(facts: Facts) -> str:
    if not facts.called:
        return ": the optimizer was not called"
    if facts.lr == 0.0:
        return ": its rate is 0"
    why = "the step does not pass its gradient on, or something writes the weight back"
    return f": {facts.remark or why}"
