"""The user's functions of a weight: what they take, and whether a compiled graph can read them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeAlias

from mindspore import Parameter, Tensor, nn, ops

from msgrad.errors import ArgumentError, ArgumentTypeError

Rule: TypeAlias = "Callable[..., Tensor] | nn.Cell"
# An attribute of a rule that follows another network: the rule for statistics and integers.
COPIES = "for_statistics"

# Named functions of these modules compile; other compiled code (NumPy's, a bound C method) does
# not.
_READABLE_C = ("builtins", "_operator")
HOW_TO_WRITE = (
    "write it as a def in a file, or as a lambda alone on its line: f = lambda w: 0.5 * w"
)


def check_callable(label: str, rule: object) -> None:
    """Refuse what cannot be called with a weight.

    Raises:
        ArgumentTypeError: It is a class, or cannot be called.
    """
    if isinstance(rule, type) or not callable(rule):
        raise ArgumentTypeError(
            f"rule {label} is {rule!r}, no function of a weight; give fn(w) or fn(w, step)"
        )


def companions_of(rule: Rule, weight: Parameter, path: str) -> list[tuple[Tensor, bool]]:
    """Return what goes beside one weight into a rule, and whether the update owns it."""
    found = []
    for method, owned in (("state_of", True), ("companion_of", False)):
        if isinstance(rule, nn.Cell) and hasattr(type(rule), method):
            found.append((getattr(rule, method)(weight, path), owned))
    return found


def takes_step(label: str, rule: Rule, given: int) -> bool:
    """Say whether a rule wants the step number after the `given` tensors.

    Raises:
        ArgumentError: It takes more or fewer inputs than it gets.
    """
    try:
        inputs = inspect.signature(
            rule.construct if isinstance(rule, nn.Cell) else rule
        ).parameters.values()
    except (ValueError, TypeError):
        # Compiled code keeps no signature.
        return False
    places = [i for i in inputs if i.kind in (i.POSITIONAL_ONLY, i.POSITIONAL_OR_KEYWORD)]
    needed = [i for i in places if i.default is i.empty]
    open_ended = any(i.kind is i.VAR_POSITIONAL for i in inputs)
    if len(needed) > given + 1 or (len(places) < given and not open_ended):
        wanted = ("w", "state")[:given] if given < 3 else ("w", "state", "companion")
        names = ", ".join(wanted)
        raise ArgumentError(
            f"rule {label} takes {len(needed)} inputs; write fn({names}) or fn({names}, step)"
        )
    return len(needed) == given + 1 or (len(places) > given and places[given].name == "step")


def check_readable(label: str, rule: Rule, remedy: str = HOW_TO_WRITE) -> None:
    """Refuse, before anything is compiled, a function that the graph parser cannot read.

    Args:
        label: How the rule is named in the message.
        rule: The function.
        remedy: What to do instead.

    Raises:
        ArgumentError: The graph parser cannot read the function, or would read another one.
    """
    reason = _unreadable(rule)
    if reason:
        raise ArgumentError(f"rule {label} {reason}, so it cannot be compiled; {remedy}")


def _unreadable(rule: Any) -> str | None:
    if isinstance(rule, partial):
        return _unreadable(rule.func)
    if isinstance(rule, MethodType):
        return _unreadable(rule.__func__)
    if isinstance(rule, (nn.Cell, ops.Primitive)):
        return None
    if isinstance(rule, FunctionType):
        return _unreadable_function(rule)
    call = type(rule).__call__
    if isinstance(call, FunctionType):
        return _unreadable_function(call)
    owner = getattr(rule, "__module__", None) or ""
    if owner in _READABLE_C or owner.startswith("mindspore"):
        return None
    return f"is compiled code ({type(rule).__name__}), which the graph parser cannot read"


def _unreadable_function(function: FunctionType) -> str | None:
    if function.__module__.startswith("mindspore") or hasattr(function, "__wrapped_by_jit__"):
        return None
    if hasattr(function, "__wrapped__"):
        # The parser reads the source of __wrapped__: the decorator would be left out without a
        # word.
        return "has a decorator made with functools.wraps, which a graph would leave out"
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return "has no source in a file (it was made in a console, by exec or by eval)"
    if function.__name__ == "<lambda>" and not _stands_alone(source):
        return "is a lambda that shares its line, which the graph parser cannot read"
    return None


def _stands_alone(source: str) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return False
    return (
        len(body) == 1 and isinstance(body[0], ast.Assign) and isinstance(body[0].value, ast.Lambda)
    )
