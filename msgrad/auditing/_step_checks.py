"""Findings: what is wrong with the whole of a step, or worth knowing about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.auditing._collect import Collector
from msgrad.auditing._misplaced_flags import misplaced_flags
from msgrad.auditing._observations import Observations
from msgrad.auditing._rows import BESIDE, AuditRow, Finding
from msgrad.auditing._subject import Subject
from msgrad.freezing import active_dropout
from msgrad.network import every_cell, paths_of, places
from msgrad.training import TrainStep, misordered


def findings_of(
    subject: Subject,
    observations: Observations,
    collector: Collector,
    rows: Sequence[AuditRow],
    watched: Sequence[Tensor],
) -> tuple[Finding, ...]:
    """Look at the whole: faults first, then what is worth knowing."""
    found = [
        *_not_finite(observations, collector, rows, watched),
        *_nothing_moved(observations, rows),
        *_no_scalar(observations),
        *_wrong_order(subject),
        *_foreign(subject, collector),
        *_two_optimizers(subject),
        *_two_rules(subject, collector, rows),
        *_trained_statistics(collector),
        *_hidden(subject),
        *misplaced_flags(subject.network, _moving(rows)),
        *_forced(rows),
        *_streams(subject),
    ]
    return tuple(sorted(found, key=lambda finding: not finding.problem))


def _about(
    kind: str, names: Sequence[str], text: str, *, problem: bool = True
) -> Iterator[Finding]:
    """Tell what is the matter with some names, where there are some."""
    if names:
        yield Finding(kind, text.format(few(names)), tuple(names), problem)


def _moving(rows: Sequence[AuditRow]) -> set[str]:
    return {row.name for row in rows if row.in_optimizer and row.requires_grad}


def _not_finite(
    observations: Observations,
    collector: Collector,
    rows: Sequence[AuditRow],
    watched: Sequence[Tensor],
) -> Iterator[Finding]:
    """Name where NaN or infinity begins."""
    broken = [row.name for row in rows if row.verdict == "not finite"]
    if not broken:
        return
    ids = {row.name: id(value) for row, value in zip(rows, watched, strict=True)}
    first = [name for name in broken if ids[name] in observations.broken]
    if first:
        message = f"{few(first)} is not finite before the first step"
    elif observations.losses and not math.isfinite(observations.losses[0]):
        first = broken[:1]
        message = f"the loss of the first step is {observations.losses[0]}, at finite weights"
    else:
        gradients = [
            n for n in broken if not math.isfinite(observations.gradients.get(ids[n], 0.0))
        ]
        owner = collector.owners.get(ids[gradients[-1]]) if gradients else None
        # a gradient comes from behind: the last layer that has a bad one is where it begins
        first = [n for n in gradients if collector.owners.get(ids[n]) is owner]
        message = f"the gradient is not finite from {few(first)} on, toward the input"
    if not first:
        first = broken
        message = f"{few(broken)} became infinite or nan in the steps; is the rate too high?"
    yield Finding("not finite", message, tuple(first))


def _nothing_moved(observations: Observations, rows: Sequence[AuditRow]) -> Iterator[Finding]:
    weights = [row for row in rows if row.rule not in BESIDE]
    if any(row.bits_changed for row in weights):
        return
    held = [row for row in weights if row.in_optimizer]
    if not held:
        why = f"no optimizer holds any of the {len(weights)} weights; unfreeze some"
    elif not observations.called:
        why = (
            "the optimizer was not called, its counters and state stand still; call it, or give "
            "more steps where gradients are summed over several"
        )
    elif all(row.lr == 0.0 for row in held):
        why = "every learning rate is 0; give a rate, or more steps where a schedule begins at 0"
    else:
        why = "something must move; see the verdict of each weight"
    yield Finding("nothing moved", f"nothing moved: {why}", tuple(row.name for row in held))


def _no_scalar(observations: Observations) -> Iterator[Finding]:
    """Name a gradient that is not that of one scalar, the loss."""
    if observations.summed:
        yield Finding(
            "several losses",
            "the network returns several values, and the gradient is that of their sum; return the "
            "loss alone, differentiate with has_aux=True, or use mg.TrainStep(…, has_aux=True)",
        )
    elif observations.elements > 1:
        yield Finding(
            "several losses",
            f"the loss has {observations.elements} elements, and the gradient is that of their "
            "sum; return one number, such as their mean",
        )


def _wrong_order(subject: Subject) -> Iterator[Finding]:
    step = subject.run if subject.holder is None else subject.holder
    step = step.inner if isinstance(step, TrainStep) else step
    for optimizer in subject.optimizers:
        names = misordered(step, optimizer, alone=len(subject.optimizers) == 1)
        text = "the gradients of {} come in another order or number than the optimizer's parameters"
        why = ", which groups put in an order of their own; differentiate by optimizer.parameters"
        yield from _about("gradient order", names, text + why)


def _foreign(subject: Subject, collector: Collector) -> Iterator[Finding]:
    names = [
        str(p.name)
        for o in subject.optimizers
        for p in o.parameters
        if id(p) not in collector.records
    ]
    text = "the optimizer holds {}, which are not this network's; make it from the parameters of "
    yield from _about("foreign parameters", names, text + "the network that is trained")


def _two_optimizers(subject: Subject) -> Iterator[Finding]:
    first: dict[int, int] = {}
    twice: list[str] = []
    for number, optimizer in enumerate(subject.optimizers):
        for parameter in optimizer.parameters:
            if first.setdefault(id(parameter), number) != number:
                twice.append(str(parameter.name))
    yield from _about("two rules", twice, "{} is in two optimizers; give it to one")


def _two_rules(
    subject: Subject, collector: Collector, rows: Sequence[AuditRow]
) -> Iterator[Finding]:
    """Name a tied weight that stays by one of its places while the layer at another one trains."""
    by_name = {row.name: row for row in rows}
    shared = {id(p): paths for p, paths in paths_of(subject.network).items() if len(paths) > 1}
    tied = [place for place in places(subject.network) if id(place.parameter) in shared]
    for parameter in {id(place.parameter): place.parameter for place in tied}.values():
        row = by_name[str(parameter.name)]
        if row.in_optimizer or row.rule in BESIDE:
            continue
        trained = [
            place.path
            for place in tied
            if place.parameter is parameter and _has_trained_mate(place.owner, parameter, collector)
        ]
        if 0 < len(trained) < len(shared[id(parameter)]):
            yield Finding(
                "two rules",
                f"{row.name} stays, and is also {few(trained)}, in a layer that trains; "
                "freeze that layer too, or unfreeze the weight",
                (row.name,),
            )


def _has_trained_mate(owner: nn.Cell, parameter: Parameter, collector: Collector) -> bool:
    mates = [p for p in owner._params.values() if p is not None and p is not parameter]
    return any(id(mate) in collector.in_optimizer for mate in mates)


def _trained_statistics(collector: Collector) -> Iterator[Finding]:
    names = [
        str(record.parameter.name)
        for record in collector.records.values()
        if record.statistic and record.parameter.requires_grad
    ]
    text = "requires_grad is True for {}, running statistics that no optimizer may touch; turn it "
    yield from _about(
        "trainable statistics", names, text + "on for weights only, or use mg.unfreeze"
    )


def _hidden(subject: Subject) -> Iterator[Finding]:
    """Name what lies in a plain list, tuple or dict, where MindSpore does not find it."""
    known = {id(p) for p in subject.network.get_parameters()}
    cells = {id(cell) for cell in every_cell(subject.network)}
    for cell in every_cell(subject.network):
        for attribute, value in vars(cell).items():
            inside = list(_parameters_in(value, cells)) if not attribute.startswith("_") else []
            names = [str(p.name) for p in inside if id(p) not in known and p.requires_grad]
            what = f"{attribute!r} of {type(cell).__name__} is a plain {type(value).__name__} "
            text = "that hides {} from the optimizer; use CellList or ParameterTuple"
            yield from _about("plain list", names, what + text)


def _parameters_in(value: object, cells: set[int]) -> Iterator[Parameter]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, Parameter):
                yield item
            elif isinstance(item, nn.Cell) and id(item) not in cells:
                yield from item.get_parameters()
            else:
                yield from _parameters_in(item, cells)


def _forced(rows: Sequence[AuditRow]) -> Iterator[Finding]:
    names = [row.name for row in rows if row.reason.endswith("on demand")]
    text = "a weight update changes {}, which are frozen, as force=True asks"
    yield from _about("forced update", names, text, problem=False)


def _streams(subject: Subject) -> Iterator[Finding]:
    with subject.mode():
        names = active_dropout(subject.network)
    text = "dropout is active in {}: its stream cannot be restored, the next step draws other "
    yield from _about("dropout", names, text + "masks than it would have", problem=False)
