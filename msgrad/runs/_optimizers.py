"""What a config names of `mindspore.nn`: optimizers, schedules of the rate, and their keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mindspore import nn
from mindspore.nn import learning_rate_schedule

from msgrad.errors import PlanError
from msgrad.network import nearest

_WEIGHTS = "params"
_SCHEDULE = learning_rate_schedule.LearningRateSchedule


def optimizer_keywords(name: str) -> dict[str, bool]:
    """Map the keywords that an optimizer of `mindspore.nn` takes to whether it needs them.

    Raises:
        PlanError: There is no such optimizer; the message names the nearest.

    Examples:
        >>> optimizer_keywords("Momentum")["momentum"]
        True
    """
    # neither the base class nor what stands around another optimizer takes the weights
    kinds = {n: k for n in nn.__all__ if _WEIGHTS in _arguments(k := getattr(nn, n), nn.Optimizer)}
    _check(name, kinds, "optimizer of mindspore.nn")
    return _keywords(kinds[name], nn.Optimizer)


def schedule_keywords(name: str) -> dict[str, bool]:
    """Map the keywords that a schedule of the rate takes to whether it needs them.

    Raises:
        PlanError: There is no such schedule; the message names the nearest.

    Examples:
        >>> list(schedule_keywords("CosineDecayLR"))
        ['min_lr', 'max_lr', 'decay_steps']
    """
    listed = learning_rate_schedule.__all__
    kinds = {n: k for n in listed if (k := getattr(learning_rate_schedule, n)) is not _SCHEDULE}
    _check(name, kinds, "schedule of mindspore.nn")
    return _keywords(kinds[name], _SCHEDULE)


def _check(name: str, known: Mapping[str, Any], what: str) -> None:
    if name in known:
        return
    meant = nearest(name, known, 1)
    hint = f"did you mean {meant[0]!r}?" if meant else f"known are {', '.join(known)}"
    raise PlanError(f"is no {what}; {hint}")


def _keywords(kind: type, base: type) -> dict[str, bool]:
    found = _arguments(kind, base).items()
    return {key: p.default is p.empty for key, p in found if key not in ("self", _WEIGHTS)}


def _arguments(kind: Any, base: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor; most optimizers hide theirs behind a decorator."""
    if not (isinstance(kind, type) and issubclass(kind, base)):
        return {}
    functions = list(_inside(kind.__init__))
    signatures = [dict(inspect.signature(function).parameters) for function in functions]
    found = next((s for s in signatures if _WEIGHTS in s), signatures[-1])
    return {key: p for key, p in found.items() if p.kind is p.POSITIONAL_OR_KEYWORD}


def _inside(function: Any) -> Iterator[Any]:
    """Go through the functions that a decorated one holds, the innermost first."""
    for cell in function.__closure__ or ():
        if inspect.isfunction(cell.cell_contents):
            yield from _inside(cell.cell_contents)
    yield function


def make_rate(rate: float | Mapping[str, Any]) -> Any:
    """Return a rate as optimizers take it: the number, or the schedule that a mapping names.

    Raises:
        PlanError: The schedule does not take its keywords so.
    """
    if not isinstance(rate, Mapping):
        return rate
    keywords = {key: value for key, value in rate.items() if key != "name"}
    return _made("schedule", getattr(learning_rate_schedule, rate["name"]), **keywords)


def optimizer_maker(name: str, rate: Any, keywords: Mapping[str, Any]) -> Callable[[Any], nn.Cell]:
    """Return what makes an optimizer over parameters, or over groups of them.

    Args:
        name: Its class in `mindspore.nn`.
        rate: Its learning rate, as `make_rate` gives it.
        keywords: What else it takes. Where the class refuses them, there is a `PlanError`.
    """
    kind = getattr(nn, name)

    def make(weights: Any, lr: Any = rate, **own: Any) -> nn.Cell:
        return _made("optimizer", kind, weights, learning_rate=lr, **{**keywords, **own})

    return make


def _made(what: str, kind: type, *arguments: Any, **keywords: Any) -> Any:
    try:
        return kind(*arguments, **keywords)
    except (TypeError, ValueError) as error:
        told = str(error).strip().partition("\n")[0].rstrip(".")
        raise PlanError(
            f"{what} {kind.__name__} refuses its keywords: {told}; mend them in the config"
        ) from error
