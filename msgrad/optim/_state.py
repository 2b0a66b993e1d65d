"""What an optimizer keeps: slots that belong to one weight, learning rates, and shared counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn

from msgrad.backend import running_in
from msgrad.network import copy_of, every_cell
from msgrad.optim._wrapper import parts_of

# Slots of ASGD, NAdam and AdaFactor, which no dot parts from the weight's name. By a dot alone
# `eta_a.w` would belong to `w`.
_JOINED = ("exp_avg_sq_row_", "exp_avg_sq_col_", "exp_avg_sq_", "mu_product_", "eta_", "mu_")


def owner_of(state_name: str, names: Collection[str]) -> str | None:
    """Return the weight that a state belongs to, or None for a counter.

    Optimizers name a slot `<slot>.<weight>`; the longest weight that fits is the owner, since a
    weight named `w` and one named `a.w` both end the slot `moments.a.w`.
    """
    for joined in _JOINED:
        if state_name.startswith(joined) and state_name[len(joined) :] in names:
            return state_name[len(joined) :]
    rest = state_name
    while "." in rest:
        rest = rest.split(".", 1)[1]
        if rest in names:
            return rest
    return None


def rates_of(optimizer: nn.Cell) -> dict[str, Parameter]:
    """Map the name of each weight to the Parameter that holds its rate, where there is one."""
    parts = parts_of(optimizer)
    return {name: rate for part in parts for name, rate in _rates_of(part).items()}


def _group_of_each(optimizer: nn.Cell) -> list[tuple[Parameter, dict[str, Any]]]:
    """List the weights with their groups, for an optimizer of `mindspore.experimental`."""
    groups = getattr(optimizer, "param_groups", None) or ()
    return [(weight, group) for group in groups for weight in group["params"]]


def _rates_of(optimizer: nn.Cell) -> dict[str, Parameter]:
    grouped = _group_of_each(optimizer)
    if grouped:
        return {p.name: g["lr"] for p, g in grouped if isinstance(g["lr"], Parameter)}
    rate = getattr(optimizer, "learning_rate", None)
    weights = list(optimizer.parameters)
    per_weight = (
        list(rate)
        if getattr(optimizer, "is_group_lr", False) and rate is not None
        else [rate] * len(weights)
    )
    found = {p.name: _parameter_of(r) for p, r in zip(weights, per_weight, strict=True)}
    return {name: r for name, r in found.items() if r is not None}


def _parameter_of(rate: object) -> Parameter | None:
    if isinstance(rate, nn.Cell):
        # a fixed rate among scheduled ones, and a list of rates, are cells around one Parameter
        rate = getattr(rate, "learning_rate", None)
    return rate if isinstance(rate, Parameter) else None


def own_parameters(
    cell: nn.Cell, foreign: Iterable[Parameter], around: nn.Cell | None = None
) -> list[Parameter]:
    """List the parameters under a cell that are not among the foreign ones, each once.

    The optimizers of `mindspore.experimental` keep some slots in plain lists, and `mindspore.amp`
    its loss scale in an object that is no Cell, where MindSpore's own walk does not look. Those of
    users may keep them in tuples and dicts too. In the network that the cell is `around`, and in
    the cells of msgrad, what stands there is others'.
    """
    skip = {id(p) for p in foreign}
    found = {id(p): p for p in cell.get_parameters()}
    theirs = set() if around is None else {id(part) for part in every_cell(around)}
    for part in every_cell(cell):
        deep = id(part) not in theirs and not type(part).__module__.startswith("msgrad.")
        for value in vars(part).values():
            found.update({id(p): p for p in _kept_in(value, deep=deep)})
    return [p for key, p in found.items() if key not in skip]


def _kept_in(value: Any, *, deep: bool) -> Iterator[Parameter]:
    if isinstance(value, amp.LossScaler):
        value = list(vars(value).values())
    if isinstance(value, list) or (deep and isinstance(value, (tuple, dict))):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, Parameter):
                yield item
            elif deep:
                yield from _kept_in(item, deep=True)


def replace_parameters(cell: nn.Cell, new: Mapping[int, Parameter]) -> None:
    """Put parameters in the place of others wherever a cell, or one in it, keeps them.

    Args:
        cell: An optimizer that has not been compiled yet.
        new: For the id of a parameter the one to use instead.
    """
    for part in every_cell(cell):
        own = part.__dict__
        for key, parameter in own["_params"].items():
            own["_params"][key] = new.get(id(parameter), parameter)
        for key in own.keys() - {"_params", "_cells"}:
            own[key] = _replaced(own[key], new)


def _replaced(value: Any, new: Mapping[int, Parameter]) -> Any:
    """Return a value with other parameters in it; lists and dicts stay the objects they are."""
    if isinstance(value, Parameter):
        return new.get(id(value), value)
    if type(value) in (list, dict):
        for key in range(len(value)) if type(value) is list else value:
            value[key] = _replaced(value[key], new)
    elif type(value) in (tuple, ParameterTuple):
        items = [_replaced(item, new) for item in value]
        if any(a is not b for a, b in zip(items, value, strict=True)):
            return type(value)(items)
    return value


class Rates(NamedTuple):
    """What an optimizer would use at its next step."""

    lr: float
    weight_decay: float


def rates_by_weight(optimizer: nn.Cell) -> dict[int, Rates]:
    """Map the id of each weight to its rate and decay, schedules evaluated at the present step."""
    return {key: r for part in parts_of(optimizer) for key, r in _rates_by_weight(part).items()}


def _rates_by_weight(optimizer: nn.Cell) -> dict[int, Rates]:
    grouped = _group_of_each(optimizer)
    if grouped:
        return {
            id(p): Rates(_number(g["lr"]), _number(g.get("weight_decay", 0.0))) for p, g in grouped
        }
    weights = list(optimizer.parameters)
    # a schedule is a Cell, which GRAPH_MODE would compile
    with running_in(ms.PYNATIVE_MODE):
        lr, decay = optimizer.get_lr(), optimizer.get_weight_decay()
    lrs, decays = _each(lr, len(weights)), _each(decay, len(weights))
    # MindSpore multiplies a fixed decay by the loss scale, as it does with the gradients
    scale = getattr(optimizer, "loss_scale", 1.0)
    return {
        id(p): Rates(rate, wd / scale if decays_it else 0.0)
        for p, rate, wd, decays_it in zip(weights, lrs, decays, _flags(optimizer), strict=True)
    }


def _flags(optimizer: nn.Cell) -> Sequence[bool]:
    return getattr(optimizer, "decay_flags", None) or [True] * len(optimizer.parameters)


def _each(value: Any, count: int) -> list[float]:
    if isinstance(value, (tuple, list)):
        return [_number(one) for one in value]
    return [_number(value)] * count


def _number(value: Any) -> float:
    number = float(copy_of(value).ravel()[0] if isinstance(value, Tensor) else value)
    # as it was written: 0.1, not the 0.10000000149 that float32 makes of it
    return float(f"{number:.7g}")
