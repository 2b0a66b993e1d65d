"""Training a run, and evaluating it."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore.dataset import Dataset
from mindspore.train import Callback

from msgrad.backend import DRY_RUN, alike, computes
from msgrad.errors import ArgumentError, CheckpointError, PlanError
from msgrad.freezing import records_of
from msgrad.network import Snapshot
from msgrad.runs._audit import audits, first_batch, no_batch
from msgrad.runs._build import Run
from msgrad.runs._epochs import Log, Report, Tick
from msgrad.runs._folder import CONFIG, FIGURES, locked, make_room
from msgrad.runs._results import RunResult
from msgrad.runs._resume import go_where_it_lies, resumed
from msgrad.runs._saves import save_weights
from msgrad.runs._watch import Watch
from msgrad.training import Position, TrainStep

_LOG = logging.getLogger("msgrad")


def train(
    run: Run,
    *,
    resume: str | Path | None = None,
    overwrite: bool = False,
    report: Report = lambda _: None,
    tick: Tick = lambda _, __: None,
) -> RunResult:
    """Train a run to its end, saving after each epoch.

    One step is trained by ``Model.train``, so that data sink and MindSpore's own parallel training
    work; several in a loop, in the order of the config, on the same batch.

    Args:
        run: The run.
        resume: The ``ckpt_save_dir`` of a run that was stopped; it goes on behind its last epoch
            in that folder, with the batches that would have come.
        overwrite: Clear what an earlier run left in ``ckpt_save_dir``, and nothing else.
        report: Called on rank 0 after each epoch.
        tick: Called on rank 0 after each step, with the steps of this epoch so far and in all.

    Returns:
        What each epoch gave, and how far each weight moved.

    Raises:
        ArgumentError: Both ``resume`` and ``overwrite``.
        AuditError: The plan wants an audit first, and it found problems.
        CheckpointError: What is to be resumed does not fit; ``ckpt_save_dir`` holds a run already,
            another process trains in it, or it cannot be written.
        PlanError: There is no data, or nothing is left to train.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import build, load_config, train
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
        >>> result = train(build(load_config("run.yaml", ["epoch_size=2"])))
        >>> len(result.epochs), result.movement.moved, result.broken
        (2, ['2.weight', '2.bias'], [])
    """
    if resume is not None and overwrite:
        raise ArgumentError(
            f"resume {str(resume)!r} goes on with what overwrite clears; give one of the two"
        )
    folder = run.config.save_dir if resume is None else go_where_it_lies(run, resume)
    batches, held_out = run.task.call("datasets", run.config)
    if not batches.get_dataset_size():
        raise PlanError(no_batch(run))
    _check_steps(run, batches.get_dataset_size())
    with ExitStack() as stack:
        # rank 0 writes; where it cannot, no rank trains
        alike("the folder of the run", lambda: _enter(run, resume, overwrite, stack), lambda _: {})
        watch, position = Watch(run, held_out is not None), Position(0, 0)
        if resume is not None:
            position = resumed(run, resume, batches.get_dataset_size(), watch)
        if run.rank == 0:
            run.config.save(folder / CONFIG)
        if position.epoch == 0:
            _audit_first(run, batches)
        log = Log(run, held_out, report, tick, batches.get_dataset_size(), watch)
        return _trained(run, batches, position, log)


def _enter(run: Run, resume: str | Path | None, overwrite: bool, stack: ExitStack) -> None:
    """Take the folder of a run, and make room in it for a new one."""
    if run.rank:
        return
    folder = run.config.save_dir
    stack.enter_context(locked(folder))
    if resume is None:
        base = run.config.ckpt_path
        if overwrite and base and folder.resolve() in Path(base).resolve().parents:
            raise CheckpointError(
                f"ckpt_path {base!r} lies in the folder that overwrite clears; give another "
                "ckpt_save_dir"
            )
        make_room(folder, overwrite=overwrite)


def _check_steps(run: Run, size: int) -> None:
    """Refuse stages counted in steps that the run is too short for."""
    if run.schedule is not None and run.schedule.unit == "steps":
        lengths = [1 if stage.length is None else stage.length for stage in run.schedule.stages]
        epochs = -(-sum(lengths) // size)
        if epochs > run.config.epoch_size:
            raise PlanError(
                f"the stages need {sum(lengths)} steps and {run.config.epoch_size} epochs of "
                f"{size} have {run.config.epoch_size * size}; shorten them, or give epoch_size: "
                f"{epochs} or more"
            )


def _trained(run: Run, batches: Dataset, position: Position, log: Log) -> RunResult:
    """Train from a position to the end, and write what came of it."""
    folder, before = run.config.save_dir, Snapshot(run.net)
    if len(run.steps) == 1:
        _by_model(run, batches, position, log)
    else:
        _by_loop(run, batches, position, log)
    movement, held = before.compare(), _held(run)
    if not computes():
        _LOG.warning("%s is set: all was compiled and nothing computed, no figure counts", DRY_RUN)
        held = ()
    best = log.watch.best
    figures = RunResult(run.device, ms.__version__, tuple(log.epochs), movement, held, best, folder)
    if run.rank == 0:
        save_weights(run.config.weights, run.net)
        figures.to_json(folder / FIGURES)
    return figures


def _held(run: Run) -> tuple[str, ...]:
    """Name the weights that no step trained so far, nor any update changed."""
    moved = {name for step in run.steps.values() for names in step.stages for name in names}
    moved |= {n for step in run.steps.values() for update in step.updates for n in update.names}
    records = records_of(run.net).values()
    names = [str(r.parameter.name) for r in records if r.can_train]
    return tuple(name for name in names if name not in moved)


def _skip(batches: Dataset, position: Position) -> None:
    """Let MindSpore leave out the batches that were trained on, and shuffle on from there."""
    if position.step:
        batches.set_init_step(position.step)


def _by_model(run: Run, batches: Dataset, position: Position, log: Log) -> None:
    (step,) = run.steps.values()
    callbacks: list[Callback] = [log]
    if run.schedule is not None:
        # it goes first, so that what is reported is of its stage
        callbacks.insert(0, run.schedule)
    if run.config.dataset_sink_mode:
        _prepare_for_sink(run, step, batches, position, callbacks)
    _skip(batches, position)
    ms.Model(step).train(
        run.config.epoch_size,
        batches,
        callbacks=callbacks,
        dataset_sink_mode=run.config.dataset_sink_mode,
        initial_epoch=position.epoch,
    )


def _prepare_for_sink(
    run: Run, step: TrainStep, batches: Dataset, position: Position, callbacks: list[Callback]
) -> None:
    """Find what no gradient reaches: a sink hands the step no batch to find it by."""
    if run.schedule is None:
        callbacks.insert(0, _Sink(step))
    else:
        run.schedule.at(epoch=position.epoch, step=position.step)
    batch, _ = first_batch(run, batches)
    step.prepare(*batch)


class _Sink(Callback):
    """Does for a run without stages what a `Schedule` does under a data sink."""

    def __init__(self, step: TrainStep) -> None:
        super().__init__()
        self.step = step

    def on_train_step_begin(self, run_context: Any) -> None:
        if ms.get_context("mode") == ms.GRAPH_MODE:
            run_context.original_args().train_network.phase = self.step.prepare_for_sink()

    def on_train_step_end(self, run_context: Any) -> None:
        if ms.get_context("mode") == ms.GRAPH_MODE:
            self.step.count_steps(run_context.original_args().dataset_helper.sink_size())


def _by_loop(run: Run, batches: Dataset, position: Position, log: Log) -> None:
    epochs, done = run.config.epoch_size, position.step
    _skip(batches, position)
    rows = batches.create_tuple_iterator(num_epochs=epochs)
    for epoch in range(position.epoch, epochs):
        log.start()
        for batch in rows:
            if run.schedule is not None:
                run.schedule.at(epoch=epoch, step=done)
            for name, step in run.steps.items():
                log.note(name, step(*batch))
            done += 1
        for step in run.steps.values():
            step.set_epoch(epoch + 1)
        log.finish(epoch + 1, done)
        if log.watch.stopped:
            return


def _audit_first(run: Run, batches: Dataset) -> None:
    settings = run.config.plan.audit
    if settings is None or settings.when == "never":
        return
    batch, _ = first_batch(run, batches)
    for found in audits(run, batch, settings.steps):
        if settings.on_problem == "error":
            found.audit.check()
        where = f"step {found.step}" + (f", stage {found.stage}" if found.stage else "")
        for problem in found.audit.problems:
            _LOG.warning("audit of %s: %s", where, problem)
