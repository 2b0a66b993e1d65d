"""All that is wrong with a config, the task and the patterns for its network included, at once."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from msgrad.errors import ArgumentError, NoMatchError, PlanError
from msgrad.network import select
from msgrad.plans import Checker, Kind, Plan
from msgrad.runs._task import Task, load_task


def check_task(checker: Checker, config: Any, task: Task, *, losses: bool = True) -> dict[str, Any]:
    """Note what the task lacks and which of its keys it does not know; return all its keys."""
    wanted = [step.loss for step in config.steps.values()] if losses else []
    for problem in task.problems(wanted):
        checker.note(("task",), problem)
    keys = dict(config.task_args)
    if task.defaults is None:
        return keys
    kinds = dict.fromkeys(task.defaults, Kind(lambda value: value))
    checker.mapping(("task_args",), keys, kinds, f"task {task.name!r}")
    return {**task.defaults, **{key: v for key, v in keys.items() if key in task.defaults}}


def check_steps(checker: Checker, config: Any, net: nn.Cell) -> None:
    """Note the steps whose patterns select nothing."""
    for name, step in config.steps.items():
        try:
            select(net, *step.trains)
        except (NoMatchError, ArgumentError) as error:
            checker.note(("steps", name, "trains"), f"step {name!r}: {error}")


def look_further(checker: Checker, config: Any, plan: Plan, task: Task | None = None) -> None:
    """Note what is wrong beside what was found already, as far as the network can be made.

    Args:
        checker: It has found something.
        config: The config, as far as it could be read.
        plan: Likewise.
        task: Its task; None where it was not looked at yet.
    """
    if task is None:
        try:
            task = load_task(config.task, config.source.folder)
        except PlanError as error:
            known = {problem.message for problem in checker.problems}
            for problem in error.problems:
                if problem.message not in known:
                    checker.note(("task",), problem.message)
            return
        # a step that is misspelt may name another loss than it means
        keys = check_task(checker, config, task, losses=False)
        config.task_args.clear()
        config.task_args.update(keys)
    try:
        net = task.call("network", config)
    # with keys that are wrong it may fail in any way; what was found is raised
    except Exception:
        return
    if isinstance(net, nn.Cell):
        checker.problems += plan.unmatched(net)
        check_steps(checker, config, net)
