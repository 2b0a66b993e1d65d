"""The audit of a run: every train step in every stage, on a batch of its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mindspore import Tensor
from mindspore.dataset import Dataset

from msgrad.auditing import Audit, audit
from msgrad.errors import PlanError
from msgrad.runs._build import Run, each_stage


@dataclass(frozen=True)
class StepAudit:
    """The audit of one train step in one stage.

    Attributes:
        step: The name of the train step.
        stage: The stage, from 1; None where the plan has none.
        audit: What it found.

    Examples:
        >>> from msgrad import Audit
        >>> StepAudit("train", 1, Audit(rows=(), findings=(), steps=3)).audit.ok
        True
    """

    step: str
    stage: int | None
    audit: Audit


def audits(run: Run, batch: Sequence[Tensor], steps: int = 3) -> Iterator[StepAudit]:
    """Audit every train step of a run in every stage; the run is as before afterwards.

    Args:
        run: The run, before it trains.
        batch: What the steps are called with.
        steps: Real steps that each audit makes and takes back.

    Yields:
        The audits, stage by stage; the run stands in that stage while one is taken.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import audits, build, first_batch, load_config
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
        >>> batch, _ = first_batch(run)
        >>> [(found.step, found.stage, found.audit.ok) for found in audits(run, batch)]
        [('train', None, True)]
    """
    for stage in each_stage(run):
        for name, step in run.steps.items():
            yield StepAudit(name, stage, audit(step, *batch, steps=steps))


def first_batch(run: Run, dataset: Dataset | None = None) -> tuple[tuple[Tensor, ...], str | None]:
    """Return a batch of the data of a run, or what its task gives where there is no data.

    Args:
        run: The run.
        dataset: Where to take it; that of the task by default.

    Returns:
        The batch, and why it is not of the data; None where it is.

    Raises:
        PlanError: There is neither data nor a function ``inputs`` in the task.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import build, first_batch, load_config
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
        >>> batch, absent = first_batch(build(load_config("run.yaml")))
        >>> [each.shape for each in batch], absent
        ([(4, 4), (4, 2)], None)
    """
    try:
        batches = dataset or _batches(run)
        batch = next(batches.create_tuple_iterator(num_epochs=1), None)
        if batch is None:
            raise PlanError(no_batch(run))
        return tuple(batch), None
    except (PlanError, OSError) as error:
        if not run.task.has("inputs"):
            raise
        return tuple(run.task.call("inputs", run.config)), str(error)


def no_batch(run: Run) -> str:
    """Say that the data of a run fill no batch."""
    return (
        f"datasets() of task {run.task.name!r} gives no batch; lower batch_size "
        f"{run.config.batch_size}, or mend the data"
    )


def _batches(run: Run) -> Dataset:
    run.config.check_paths("data_dir")
    batches, _ = run.task.call("datasets", run.config)
    return batches
