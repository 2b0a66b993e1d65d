"""What the rules and stages of a plan say of one parameter, each in one line."""

from __future__ import annotations

from mindspore import Parameter

from msgrad.plans._resolve import ResolvedRules, ResolvedStages, shown, words
from msgrad.plans._rule import PlanRule

_SAYS = {"freeze": "keeps it", "unfreeze": "lets it move", "hold": "holds it"}


def tell(resolved: ResolvedRules, times: ResolvedStages, parameter: Parameter) -> list[str]:
    """Say what each rule that takes a parameter decides of it, and what it overrides."""
    index = next(n for n, p in enumerate(resolved.parameters.members) if p is parameter)
    return [*_rules(resolved, index), *_cells(resolved, index), *_stages(times, index)]


def _rules(resolved: ResolvedRules, index: int) -> list[str]:
    taking = [
        number
        for number, rule in enumerate(resolved.rules)
        if not rule.of_cells and index in resolved.matched[number]
    ]
    return [_rule(resolved, index, number, taking) for number in taking]


def _rule(resolved: ResolvedRules, index: int, number: int, taking: list[int]) -> str:
    rule = resolved.rules[number]
    said = [
        _said(rule, field, value) + _standing(resolved, index, field, number, taking)
        for field, value in rule.says().items()
    ]
    return f"{head(rule)}: {', '.join(said)}"


def _said(rule: PlanRule, field: str, value: object) -> str:
    if field == "frozen" or (field == "hold rows" and value is None):
        return _SAYS[rule.kind]
    return words(field, value)


def _standing(
    resolved: ResolvedRules, index: int, field: str, number: int, taking: list[int]
) -> str:
    """Say which rule before it a rule overrides in one field, or which one overrides it."""
    others = [other for other in taking if field in resolved.rules[other].says()]
    winner = resolved.winner[field][index]
    if winner != number:
        return f" (overridden by {resolved.rules[winner].label})"
    over = [resolved.rules[other].label for other in others if other < number]
    return f", over {' and '.join(over)}" if over else ""


def _cells(resolved: ResolvedRules, index: int) -> list[str]:
    paths = resolved.parameters.paths[index]
    found = []
    for number, rule in enumerate(resolved.rules):
        if rule.of_cells:
            around = [
                (cell, path)
                for cell in sorted(resolved.matched[number])
                for path in resolved.cells.paths[cell]
                if any(own.startswith(f"{path}.") for own in paths)
            ]
            found += [_cell(resolved, number, cell, path) for cell, path in around[:1]]
    return found


def _cell(resolved: ResolvedRules, number: int, cell: int, path: str) -> str:
    rule = resolved.rules[number]
    taking = [
        n
        for n, matched in enumerate(resolved.matched)
        if resolved.rules[n].of_cells and cell in matched
    ]
    said = [
        words(field, value) + _standing(resolved, cell, field, number, taking)
        for field, value in rule.says().items()
    ]
    return f"{head(rule)}: {', '.join(said)}, for all in {path!r}"


def _stages(times: ResolvedStages, index: int) -> list[str]:
    return [
        f"{stage.label} {'trains' if index in trained else 'keeps'} it"
        for stage, trained in zip(times.stages, times.trained, strict=False)
    ]


def head(rule: PlanRule) -> str:
    """Name a rule with its place, its kind and its patterns."""
    return f"{rule.label} {rule.kind} {shown(rule.patterns)}"
