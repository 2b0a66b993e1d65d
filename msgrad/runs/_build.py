"""A run: the network of a config, its plan applied, and the steps that train it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mindspore as ms
from mindspore import Tensor, communication, nn

from msgrad._text import count
from msgrad.backend import use_device, why_not_ascend
from msgrad.checkpoints import load_weights
from msgrad.errors import DeviceError, PlanError
from msgrad.plans import Applied, Checker
from msgrad.runs._config import Config
from msgrad.runs._faults import check_steps, check_task, look_further
from msgrad.runs._keys import OptimizerKeys
from msgrad.runs._optimizers import make_rate, optimizer_maker
from msgrad.runs._task import Task, load_task
from msgrad.training import Schedule, TrainStep

_LOG = logging.getLogger("msgrad")
THE_STEP = "train"


@dataclass
class Run:
    """What a config gives when it is built.

    Attributes:
        config: The config, the keys of the task filled up.
        task: The functions of the task file.
        device: The device that was taken.
        net: The network, its weights loaded.
        applied: The plan as it stands on the network.
        steps: The train steps by name; one without a name is called ``train``.
        schedule: The stages; None where the plan has none.
        rank: The number of this process among those that train together.
        makers: What makes the optimizer of each step of a list of parameters.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import build, load_config
        >>> _ = Path("task.py").write_text('''
        ... import numpy as np
        ... from mindspore import dataset, nn
        ... def network(config):
        ...     return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        ... def loss():
        ...     return nn.MSELoss()
        ... def datasets(config):
        ...     rows = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
        ...     return dataset.NumpySlicesDataset(rows).batch(config.batch_size), None
        ... ''')
        >>> _ = Path("run.yaml").write_text("{task: task.py, plan: [{freeze: '0'}], batch_size: 4}")
        >>> run = build(load_config("run.yaml"))
        >>> print(run)
        run on CPU, graph mode, 1 epoch
        >>> run.steps["train"].trainable
        ['2.weight', '2.bias']
    """

    config: Config
    task: Task
    device: str
    net: nn.Cell
    applied: Applied
    steps: dict[str, TrainStep]
    schedule: Schedule | None
    rank: int = 0
    makers: dict[str, Callable[[Any], nn.Cell]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        config = self.config
        stages = [] if self.schedule is None else [count(len(self.schedule.stages), "stage")]
        parts = [f"{config.name} on {self.device}", f"{config.mode} mode"]
        return ", ".join([*parts, count(config.epoch_size, "epoch"), *stages])


def build(config: Config, *, dry: bool = False, data: bool = True) -> Run:
    """Take the device, make the network, apply the plan, and make the steps.

    Args:
        config: The config.
        dry: To look at and not to train: on the CPU, in this process alone, with the first weights.
        data: Whether ``data_dir`` has to be there.

    Returns:
        The run; nothing is compiled yet.

    Raises:
        PlanError: The task or the plan does not fit, or files are not there.
        CheckpointError: ``ckpt_path`` does not fit the network.
        DeviceError: The device cannot be used.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import build, load_config
        >>> _ = Path("task.py").write_text('''
        ... import numpy as np
        ... from mindspore import dataset, nn
        ... def network(config):
        ...     return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        ... def loss():
        ...     return nn.MSELoss()
        ... def datasets(config):
        ...     rows = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
        ...     return dataset.NumpySlicesDataset(rows).batch(config.batch_size), None
        ... ''')
        >>> _ = Path("run.yaml").write_text("{task: task.py, plan: [{freeze: '0'}], batch_size: 4}")
        >>> build(load_config("run.yaml"), dry=True).applied.frozen
        ['0.weight', '0.bias']
    """
    checker = Checker(config.source)
    if not dry:
        paths = ("data_dir", "ckpt_path") if data else ("ckpt_path",)
        checker.problems += config.path_problems(*paths)
    task = _task(config, checker)
    config = replace(config, task_args=check_task(checker, config, task))
    if checker.problems:
        look_further(checker, config, config.plan, task)
        checker.raise_all()
    device = _device(config, dry=dry)
    config = _without_what_a_cpu_lacks(config, device, dry=dry)
    ms.set_seed(config.seed)
    net = task.call("network", config)
    if not isinstance(net, nn.Cell):
        raise PlanError(f"network() of task {task.name!r} returned {net!r}; return a Cell")
    _check_patterns(checker, config, net)
    if config.ckpt_path and not dry:
        load_weights(net, config.ckpt_path)
    applied = config.plan.apply(net)
    makers = {name: _maker(own) for name, own in _optimizers(config).items()}
    steps = {name: _step(config, task, net, name, makers[name], device) for name in makers}
    first = next(iter(steps.values()))
    schedule = config.plan.schedule(first, epochs=config.epoch_size, watched=True)
    return Run(config, task, device, net, applied, steps, schedule, rank_of_this(), makers)


def each_stage(run: Run) -> Iterator[int | None]:
    """Bring a run to each of its stages, and at last back to the first.

    Yields:
        The number of the stage, from 1; None, once, for a run without stages.
    """
    schedule = run.schedule
    if schedule is None:
        yield None
        return
    lengths = [stage.length for stage in schedule.stages]
    for number, length in enumerate(lengths, 1):
        # one of no length never holds
        if length != 0:
            _go(schedule, sum(before or 0 for before in lengths[: number - 1]))
            yield number
    _go(schedule, 0)


def _go(schedule: Schedule, position: int) -> None:
    if schedule.unit == "epochs":
        schedule.at(epoch=position)
    else:
        schedule.at(step=position)


def rank_of_this() -> int:
    """Return the number of this process among those that train together, 0 if it is alone."""
    return communication.get_rank() if communication.GlobalComm.INITED else 0


def _device(config: Config, *, dry: bool) -> str:
    if dry:
        return use_device("CPU", mode=config.mode)
    obstacle = why_not_ascend() if config.device_target == "Ascend" else None
    if obstacle is not None:
        fact, remedy = obstacle
        message = f"device_target 'Ascend' cannot be used, {fact}; {remedy}, or give auto or CPU"
        raise DeviceError(str(config.source.problem(("device_target",), message)))
    return use_device(
        config.device_target,
        device_id=config.device_id,
        mode=config.mode,
        jit_level=config.jit_level,
        distributed=config.distribute,
    )


def _without_what_a_cpu_lacks(config: Config, device: str, *, dry: bool) -> Config:
    """Turn off what only an Ascend does, and say so."""
    off: dict[str, Any] = {}
    if device == "CPU" and config.dataset_sink_mode:
        off["dataset_sink_mode"] = False
        _say(dry, "dataset_sink_mode true is turned off: the CPU has no data sink")
    if device == "CPU" and config.loss_scale is not None:
        off["loss_scale"] = None
        _say(dry, f"loss_scale {config.loss_scale} is turned off: the CPU has no kernel for it")
    return replace(config, **off)


def _say(dry: bool, text: str) -> None:
    # a dry run says nothing of the device of the run
    if not dry:
        _LOG.warning("%s", text)


def _task(config: Config, checker: Checker) -> Task:
    try:
        return load_task(config.task, config.source.folder)
    except PlanError as error:
        for problem in error.problems:
            checker.note(("task",), problem.message)
        if len(checker.problems) > len(error.problems):
            checker.raise_all()
        raise


def _check_patterns(checker: Checker, config: Config, net: nn.Cell) -> None:
    """Refuse patterns that select nothing, those of the plan and those of the steps."""
    check_steps(checker, config, net)
    try:
        config.plan.check(net)
    except PlanError as error:
        if not checker.problems:
            raise
        checker.problems += error.problems
    checker.raise_all()


# --- steps


def _optimizers(config: Config) -> Mapping[str, OptimizerKeys]:
    if not config.steps:
        return {THE_STEP: config.optimizer}
    return {name: step.optimizer or config.optimizer for name, step in config.steps.items()}


def _maker(keys: OptimizerKeys) -> Callable[[Any], nn.Cell]:
    return optimizer_maker(keys.name, make_rate(keys.learning_rate), keys.keywords)


def _step(
    config: Config,
    task: Task,
    net: nn.Cell,
    name: str,
    maker: Callable[[Any], nn.Cell],
    device: str,
) -> TrainStep:
    own = config.steps.get(name)
    keys = _optimizers(config)[name]
    step = config.plan.train_step(
        net,
        maker,
        task.call("loss") if own is None and task.has("loss") else None,
        network=None if own is None else task.call(own.loss, net),
        lr=make_rate(keys.learning_rate),
        weight_decay=keys.weight_decay,
        train_cell=_train_cell(config),
        trainable=None if own is None else list(own.trains),
        clip_norm=config.clip_norm,
        clip_value=config.clip_value,
        accumulate=config.accumulate,
        unreached=config.unreached,
        has_aux=config.has_aux,
    )
    return step.set_train()


def _train_cell(config: Config) -> Callable[[nn.Cell, nn.Cell], nn.Cell] | None:
    if config.loss_scale is None:
        return None
    scale = Tensor(config.loss_scale, ms.float32)
    return lambda network, optimizer: nn.TrainOneStepWithLossScaleCell(network, optimizer, scale)
