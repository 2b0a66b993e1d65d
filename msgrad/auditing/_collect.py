"""The facts of each parameter: what steps showed beside what records and optimizers say."""

from __future__ import annotations

import math
from collections.abc import Collection

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.auditing._cuts import Cut
from msgrad.auditing._observations import Observations
from msgrad.auditing._rows import AuditRow
from msgrad.auditing._subject import Subject
from msgrad.auditing._verdict import Facts, verdict_on
from msgrad.backend import latches, release_latches
from msgrad.errors import ConflictError
from msgrad.freezing import Claim, Record, records_of
from msgrad.network import copy_of, every_cell
from msgrad.optim import Rates, rates_by_weight
from msgrad.training import TrainStep
from msgrad.updates import WeightUpdates
from msgrad.wrappers import ReverseGradient, ScaleGradient, wrapped

# The distance from 1 to the next number.
_SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


class Collector:
    """All that is written down of one subject beside the observations of its steps."""

    def __init__(
        self, subject: Subject, observations: Observations, kept_out: Collection[int]
    ) -> None:
        self.observations = observations
        self.records = records_of(subject.network)
        self.owners = _owners(subject.network)
        self._kept_out = kept_out
        weights = [p for o in subject.optimizers for p in o.parameters]
        self.in_optimizer = {id(p) for p in weights}
        self._rates: dict[int, Rates] = {}
        for optimizer in subject.optimizers:
            self._rates.update(_rates(optimizer))
        self._held = {n for o in subject.optimizers for n in getattr(o, "held", ())}
        step = subject.holder
        self._train_step = step if isinstance(step, TrainStep) else None
        self._updates = {
            name: type(update).__name__
            for update in (step.updates if isinstance(step, TrainStep) else ())
            if isinstance(update, WeightUpdates)
            for name in update.names
        }
        self._paths = observations.paths
        self._pynative = ms.get_context("mode") == ms.PYNATIVE_MODE
        self.latched = _latched(list(self.records.values())) if latches() else set()
        self._muted = ", ".join(_muted_wrappers(subject.network))

    def row(self, name: str, value: Tensor) -> AuditRow:
        """Judge one parameter or buffer."""
        facts = self.facts(name, value)
        # MindSpore renames parameters when it compiles a step that has two of one name
        name = str(value.name) if isinstance(value, Parameter) else name
        rule, verdict, reason = verdict_on(facts)
        movement = self.observations.movement.get(id(value))
        return AuditRow(
            name=name,
            shape=tuple(value.shape),
            dtype=str(value.dtype).lower(),
            rule=rule,
            requires_grad=facts.flag,
            in_optimizer=facts.in_optimizer,
            lr=facts.lr,
            weight_decay=facts.decay,
            gradient=facts.gradient if facts.path == "reached" else None,
            max_change=movement.max_change if movement else 0.0,
            l2=movement.l2 if movement else 0.0,
            bits_changed=movement.bits_changed if movement else 0,
            state_changed=self.observations.state.get(id(value)),
            verdict=verdict,
            reason=reason,
        )

    def facts(self, name: str, value: Tensor) -> Facts:
        """Collect what is known of one parameter or buffer."""
        key = id(value)
        record = self.records.get(key)
        rates = self._rates.get(key)
        norm = self.observations.gradients.get(key)
        cut = self.observations.cuts.get(key, Cut(""))
        kind = self._kind(record)
        claims = self._claims(key, record, kind)
        flag = bool(getattr(value, "requires_grad", False)) if record else False
        return Facts(
            kind=kind,
            flag=flag,
            claims=", ".join(dict.fromkeys(claim.patterns for claim in claims)),
            left_out=self._left_out(key, record),
            hold=name in self._held,
            by_hand=kind == "statistic" and self._frozen_by_flags(key),
            adapting=any(not claim.statistics for claim in claims),
            in_optimizer=key in self.in_optimizer,
            by_step=self._left_by_step(key, record),
            replaced=name in self.observations.names and key not in self.in_optimizer,
            lr=rates.lr if rates else None,
            decay=rates.weight_decay if rates else None,
            path=self._paths.get(key, "unknown"),
            cut=cut.text,
            stopped=cut.stopped,
            gradient=norm,
            received=self.observations.received.get(key),
            later=self.observations.later.get(key),
            behind=few(self.observations.blank) if self.observations.filled.get(key) else "",
            elsewhere=bool(self.observations.elsewhere.get(key)),
            ignored=self._pynative and not flag,
            latched=key in self.latched,
            broken=self._broken(key, norm),
            moved=self._moved(key),
            called=self.observations.called,
            update=self._updates.get(name, ""),
            remark=self._too_small(value, rates, norm) or self._muted,
        )

    def _kind(self, record: Record | None) -> str:
        if record is None:
            return "buffer"
        if record.statistic:
            return "statistic"
        return "weight" if record.floating else "integer"

    def _claims(self, key: int, record: Record | None, kind: str) -> list[Claim]:
        if record is None:
            return []
        if kind != "statistic":
            return record.claims
        # a statistic is frozen with its layer
        mates = [self.records[m] for m in self._mates(key) if self.records[m].counts]
        if not mates or not all(mate.claims for mate in mates):
            return []
        return [claim for mate in mates for claim in mate.claims]

    def _mates(self, key: int) -> list[int]:
        """Return the other parameters of the cell that owns one."""
        owner = self.owners.get(key)
        if owner is None:
            return []
        return [id(p) for p in owner._params.values() if p is not None and id(p) != key]

    def _frozen_by_flags(self, key: int) -> bool:
        owner = self.owners.get(key)
        if owner is None or getattr(owner, "affine", True) is False:
            return False
        mates = [self.records[mate] for mate in self._mates(key)]
        weights = [r for r in mates if r.can_train]
        return bool(weights) and not any(r.parameter.requires_grad or r.claims for r in weights)

    def _left_out(self, key: int, record: Record | None) -> str:
        if key in self._kept_out:
            return "held="
        if self._train_step is None or record is None or not record.trains:
            return ""
        out = key not in self.in_optimizer and self._paths.get(key) != "unreached"
        return "trainable=" if out else ""

    def _left_by_step(self, key: int, record: Record | None) -> bool:
        if self._train_step is None or record is None:
            return False
        lost = self._paths.get(key) == "unreached"
        return record.trains and key not in self.in_optimizer and lost

    def _moved(self, key: int) -> str:
        movement = self.observations.movement.get(key)
        if movement is None or not movement.bits_changed:
            return ""
        if movement.max_change == 0.0:
            return "the signs of zeros changed"
        return f"it moved {movement.max_change:.2g}"

    def _broken(self, key: int, norm: float | None) -> str:
        movement = self.observations.movement.get(key)
        if key in self.observations.broken:
            return "it is not finite before the first step"
        if norm is not None and not math.isfinite(norm):
            loss = self.observations.losses[:1]
            lost = (
                f", and so is the loss ({loss[0]})" if loss and not math.isfinite(loss[0]) else ""
            )
            return f"its gradient is not finite{lost}"
        if movement is not None and not math.isfinite(movement.max_change):
            return "it is not finite after the steps"
        return ""

    def _too_small(self, value: Tensor, rates: Rates | None, norm: float | None) -> str:
        """Say that a step is lost in rounding, where it is."""
        kind = str(value.dtype).lower()
        if self._moved(id(value)) or not (rates and norm and kind in _SPACING):
            return ""
        # an optimizer that normalises its gradient moves by the rate, any other by less
        step = rates.lr * min(1.0, norm)
        if step >= _SPACING[kind] * float(np.abs(copy_of(value)).max(initial=0.0)):
            return ""
        return f"steps of about {step:.2g} are below the precision of {kind} at these weights"


def _rates(optimizer: nn.Cell) -> dict[int, Rates]:
    try:
        return rates_by_weight(optimizer)
    # an optimizer of the user's own need not have the methods
    except (AttributeError, TypeError, ValueError):
        return {}


def _owners(network: nn.Cell) -> dict[int, nn.Cell]:
    return {
        id(p): cell
        for cell in reversed(every_cell(network))
        for p in cell._params.values()
        if p is not None
    }


def _latched(records: list[Record]) -> set[int]:
    """Return what MindSpore 2.7 keeps at a zero gradient in PYNATIVE_MODE."""
    weights = [record.parameter for record in records if record.trains]
    return {id(p) for p in weights if _is_latched([p])} if _is_latched(weights) else set()


def _is_latched(weights: list[Parameter]) -> bool:
    try:
        release_latches(weights, weights)
    except ConflictError:
        return True
    return False


def _muted_wrappers(network: nn.Cell) -> list[str]:
    """Name the wrappers that multiply the gradient by 0."""
    return [
        f"{type(wrapper).__name__} at {path!r} has the factor 0"
        for path, wrapper in wrapped(network)
        if isinstance(wrapper, (ScaleGradient, ReverseGradient)) and wrapper.factor == 0.0
    ]
