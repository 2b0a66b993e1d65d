"""What the rules and stages of a plan say of one parameter, each in one line."""

from __future__ import annotations

from mindspore import Parameter

from msgrad._plan_fates import Fates, few, words
from msgrad._plan_rule import PlanRule
from msgrad._plan_times import Times

_SAYS = {"freeze": "keeps it", "unfreeze": "lets it move", "hold": "holds it"}


def tell(fates: Fates, times: Times, parameter: Parameter) -> list[str]:
    """Say what each rule that takes a parameter decides of it, and what it overrides."""
    thing = next(n for n, p in enumerate(fates.parameters.things) if p is parameter)
    return [*_rules(fates, thing), *_cells(fates, thing), *_stages(times, thing)]


def _rules(fates: Fates, thing: int) -> list[str]:
    taking = [
        number
        for number, rule in enumerate(fates.rules)
        if not rule.of_cells and thing in fates.taken[number]
    ]
    return [_rule(fates, thing, number, taking) for number in taking]


def _rule(fates: Fates, thing: int, number: int, taking: list[int]) -> str:
    rule = fates.rules[number]
    said = [
        _said(rule, field, value) + _standing(fates, thing, field, number, taking)
        for field, value in rule.says().items()
    ]
    return f"{head(rule)}: {', '.join(said)}"


def _said(rule: PlanRule, field: str, value: object) -> str:
    if field == "frozen" or (field == "hold rows" and value is None):
        return _SAYS[rule.kind]
    return words(field, value)


def _standing(fates: Fates, thing: int, field: str, number: int, taking: list[int]) -> str:
    """Say which rule before it a rule overrides in one field, or which one overrides it."""
    others = [other for other in taking if field in fates.rules[other].says()]
    last = fates.last[field][thing]
    if last != number:
        return f" (overridden by {fates.rules[last].label})"
    over = [fates.rules[other].label for other in others if other < number]
    return f", over {' and '.join(over)}" if over else ""


def _cells(fates: Fates, thing: int) -> list[str]:
    paths = fates.parameters.paths[thing]
    found = []
    for number, rule in enumerate(fates.rules):
        if rule.of_cells:
            around = [
                (cell, path)
                for cell in sorted(fates.taken[number])
                for path in fates.cells.paths[cell]
                if any(own.startswith(f"{path}.") for own in paths)
            ]
            found += [_cell(fates, number, cell, path) for cell, path in around[:1]]
    return found


def _cell(fates: Fates, number: int, cell: int, path: str) -> str:
    rule = fates.rules[number]
    taking = [n for n, taken in enumerate(fates.taken) if fates.rules[n].of_cells and cell in taken]
    said = [
        words(field, value) + _standing(fates, cell, field, number, taking)
        for field, value in rule.says().items()
    ]
    return f"{head(rule)}: {', '.join(said)}, for all in {path!r}"


def _stages(times: Times, thing: int) -> list[str]:
    return [
        f"{stage.label} {'trains' if thing in trained else 'keeps'} it"
        for stage, trained in zip(times.stages, times.trained, strict=False)
    ]


def head(rule: PlanRule) -> str:
    """Name a rule with its place, its kind and its patterns."""
    return f"{rule.label} {rule.kind} {few(rule.patterns)}"
