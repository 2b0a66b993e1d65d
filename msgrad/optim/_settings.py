"""What a stage asks of its optimizer: a rate of its own, and other keywords."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from mindspore import nn

from msgrad._text import few
from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import copy_of, write
from msgrad.optim._combined import as_one
from msgrad.optim._state import rates_of

_PLAIN = (bool, int, float, str, list, tuple, type(None))


def check_settings(lr: Any, keywords: Any) -> dict[str, Any]:
    """Return the settings of a stage in one dict, `lr` among them where it is given.

    Raises:
        ArgumentTypeError: They are no number and no dict of plain values, which a save can hold.
        ArgumentError: The rate is negative or not finite, or stands among the keywords.
    """
    if lr is not None and (isinstance(lr, bool) or not isinstance(lr, (int, float))):
        raise ArgumentTypeError(
            f"stage has lr={lr!r}; give a number, and a schedule where the optimizer is made"
        )
    if lr is not None and not (math.isfinite(lr) and lr >= 0):
        raise ArgumentError(f"stage has lr={lr!r}; give 0 or more")
    if not isinstance(keywords or {}, Mapping):
        raise ArgumentTypeError(
            f"stage has optimizer={keywords!r}; give a dict of keywords, as {{'momentum': 0.8}}"
        )
    settings: dict[str, Any] = dict(keywords or {})
    for key, value in settings.items():
        if not isinstance(value, _PLAIN):
            raise ArgumentTypeError(
                f"stage has {key}={value!r} for its optimizer; give a number, text, true or false"
            )
    if settings.keys() & {"lr", "learning_rate"}:
        raise ArgumentError("stage has a rate among the keywords of its optimizer; give lr=")
    return settings if lr is None else {"lr": float(lr), **settings}


def refused_keywords(make: Callable[..., Any], settings: Iterable[str]) -> list[str]:
    """List the settings that what makes an optimizer takes by no keyword."""
    if hasattr(make, "takes_settings"):
        make = make.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    try:
        known = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return list(settings)
    # what takes any keyword may be a class of MindSpore, whose rate is learning_rate
    every = any(p.kind is p.VAR_KEYWORD for p in known.values())
    return [key for key in settings if key not in known and not (every and key != "lr")]


def check_keywords(make: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Refuse keywords that what makes the optimizer does not take.

    Raises:
        ArgumentError: There are some.
    """
    wrong = [key for key in refused_keywords(make, settings) if key != "lr"]
    if wrong:
        raise ArgumentError(
            f"a stage gives its optimizer {few(wrong)}, which optimizer= takes by no keyword; give "
            f"a function that does, such as lambda p, {wrong[0]}=0.9: …"
        )


def made_with(
    make: Callable[..., Any], weights: Any, settings: Mapping[str, Any], *, grouped: bool = False
) -> Any:
    """Make an optimizer as a stage asks for it.

    Where the rate cannot be given it is written; `grouped` says that it is in the groups already.

    Raises:
        ArgumentError: A keyword is not taken, or the groups have rates of their own.
    """
    if not settings or hasattr(make, "takes_settings"):
        return make(weights, **settings)
    refused = refused_keywords(make, settings)
    if not grouped:
        check_keywords(make, settings)
    made = as_one(make(weights, **{k: v for k, v in settings.items() if k not in refused}))
    if "lr" in refused and not grouped and isinstance(made, nn.Cell):
        _set_rate(made, settings["lr"])
    return made


def _set_rate(optimizer: nn.Cell, lr: float) -> None:
    rates = list(rates_of(optimizer).values())
    firsts = [copy_of(rate) for rate in rates]
    if len(rates) < len(optimizer.parameters) or any(f.ndim or f != firsts[0] for f in firsts):
        raise ArgumentError(
            f"a stage asks for lr={lr:g}, and its weights have no single rate; let optimizer= take "
            "it: lambda p, lr=0.1: …"
        )
    for rate in rates:
        write(rate, np.float32(lr))
