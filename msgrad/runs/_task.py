"""The task of a config: ordinary Python that gives the network, the loss and the data."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from msgrad.errors import PlanError
from msgrad.network import nearest
from msgrad.plans import MODES, run_file

_NEEDED = ("network", "datasets")
_LOSS = "_loss"
# Where tasks were imported from, to name the line of an error in one.
_FOLDERS: set[Path] = set()
_KNOWN = ("network", "loss", "datasets", "evaluate", "inputs")


@dataclass(frozen=True)
class Task:
    """The functions of a task file.

    Attributes:
        name: The task as the config names it, for messages.
        module: What was imported.

    Examples:
        >>> import math
        >>> Task("math", math).has("network")
        False
    """

    name: str
    module: ModuleType

    @property
    def defaults(self) -> Mapping[str, Any] | None:
        """What ``TASK_ARGS`` gives for the keys of ``task_args``; None where it is not there."""
        return getattr(self.module, "TASK_ARGS", None)

    @property
    def metrics(self) -> Mapping[str, str] | None:
        """Which figures ``evaluate`` returns, and whether ``min`` or ``max`` is better.

        None where the task has an ``evaluate`` of its own and does not say so.

        Raises:
            PlanError: ``METRICS`` is no mapping to ``min`` and ``max``.
        """
        if not self.has("evaluate"):
            return {"accuracy": "max"}
        found = getattr(self.module, "METRICS", None)
        if found is None or (
            isinstance(found, Mapping) and all(mode in MODES for mode in found.values())
        ):
            return found
        raise PlanError(
            f"METRICS {found!r} of task {self.name!r} is no mapping of figures to min or max; "
            "write METRICS = {'error': 'min'}"
        )

    def has(self, function: str) -> bool:
        """Say whether the task has a function."""
        return callable(getattr(self.module, function, None))

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of the task.

        Raises:
            PlanError: The task has none of this name.
        """
        found = getattr(self.module, function, None)
        if not callable(found):
            raise PlanError(self.missing(function))
        return found(*arguments)

    def missing(self, function: str) -> str:
        """Say that a function is not there, and which one was meant."""
        own = [name for name, value in vars(self.module).items() if _is_own(value, self.module)]
        meant = [n for n in nearest(function, own) if n not in _KNOWN or n == function]
        hint = f"did you mean {meant[0]!r}?" if meant else f"define {_signature(function)}"
        return f"task {self.name!r} has no function {function!r}; {hint}"

    def problems(self, losses: Iterable[str]) -> list[str]:
        """List what a run would miss: each function, and each loss of a step."""
        wanted = [*_NEEDED, *losses]
        return [self.missing(name) for name in wanted if not self.has(name)]


def _is_own(value: object, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _signature(function: str) -> str:
    given = {"loss": "", "evaluate": "net, dataset"}.get(function, "config")
    return f"{function}({'net' if function.endswith(_LOSS) else given})"


def load_task(name: str, folder: Path) -> Task:
    """Import a task.

    Args:
        name: A Python file, seen from the folder, or the dotted name of a module.
        folder: That of the config.

    Returns:
        The task; whether it has what a run needs is not looked at.

    Raises:
        PlanError: There is no such file or module, or it cannot be imported.
    """
    path = find_task(name, folder)
    if path is None:
        module = _imported(name, lambda: importlib.import_module(name), folder)
    else:
        module = _imported(name, lambda: run_file(path, f"msgrad_task_{path.stem}"), path.parent)
    file = getattr(module, "__file__", None)
    if file:
        _FOLDERS.add(Path(file).resolve().parent)
    return Task(name, module)


def find_task(name: str, folder: Path) -> Path | None:
    """Return the file of a task, None for the name of a module.

    Raises:
        PlanError: There is no such file.
    """
    path = folder / name
    if not name.endswith(".py"):
        return None
    if not path.is_file():
        raise PlanError(f"task {name!r} is no file, seen from the config; {_other(path)}")
    return path.resolve()


def _other(path: Path) -> str:
    files = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
    meant = nearest(path.name, files)
    return f"did you mean {meant[0]!r}?" if meant else "give the path of a Python file"


def _imported(name: str, load: Callable[[], ModuleType], folder: Path) -> ModuleType:
    with _importable(folder):
        try:
            return load()
        except Exception as error:
            raise PlanError(
                f"task {name!r} cannot be imported: {type(error).__name__}: {error}"
                f"{_line(error)}; mend it"
            ) from error


def _line(error: Exception) -> str:
    """Name the last line of the user's own files that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def location_in_task(error: BaseException) -> str | None:
    """Name the last line of a task that an error went through, as ``tasks/own.py:12``.

    Returns:
        The file and the line; None where the error does not come from a task.

    Examples:
        >>> location_in_task(ValueError("of no task")) is None
        True
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve().parent in _FOLDERS]
    if not own:
        return None
    path = Path(own[-1].filename).resolve()
    inside = path.is_relative_to(Path.cwd())
    return f"{path.relative_to(Path.cwd()) if inside else path}:{own[-1].lineno}"


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a task import its neighbours."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
