"""The end of each epoch of a run: evaluated, saved, reported."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from mindspore import Tensor
from mindspore.dataset import Dataset
from mindspore.train import Callback

from msgrad._files import as_json
from msgrad.backend import alike, saves_here
from msgrad.checkpoints import load_weights
from msgrad.runs._build import Run
from msgrad.runs._evaluate import evaluate
from msgrad.runs._folder import BEST as FILE_OF_BEST
from msgrad.runs._folder import LAST, NEW
from msgrad.runs._results import Epoch
from msgrad.runs._saves import KEPT, WATCHED, copy_file, present, save_steps, save_weights
from msgrad.runs._watch import BEST, Watch
from msgrad.training import Schedule

_LOG = logging.getLogger("msgrad")
Report: TypeAlias = Callable[[Epoch], None]
# Told after each step: steps of this epoch so far, and how many it has.
Tick: TypeAlias = Callable[[int, int], None]


class Log(Callback):
    """Notes the losses; at the end of an epoch it evaluates, saves and reports."""

    def __init__(
        self,
        run: Run,
        held_out: Dataset | None,
        report: Report,
        tick: Tick,
        size: int,
        watch: Watch,
    ) -> None:
        super().__init__()
        self.watch = watch
        self.run, self.held_out, self.report = run, held_out, report
        self.tick, self.size = tick, size
        self.epochs: list[Epoch] = []
        self.losses: dict[str, list[Tensor]] = {}
        self.began, self.warned = 0.0, False

    def start(self) -> None:
        self.losses, self.began = {}, time.perf_counter()

    def note(self, name: str, outputs: Any) -> None:
        loss = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        self.losses.setdefault(name, []).append(loss)
        if self.run.rank == 0:
            self.tick(len(self.losses[name]), self.size)

    def finish(self, epoch: int, steps: int) -> None:
        run = self.run
        figures = {} if self.held_out is None else evaluate(run, self.held_out)
        found = Epoch(
            epoch,
            run.config.epoch_size,
            steps,
            # read now: reading each at once would make the device wait
            {name: _mean(losses) for name, losses in self.losses.items()},
            figures,
            {name: len(step.trainable) for name, step in run.steps.items()},
            _stage_of(run.schedule, epoch, steps),
            time.perf_counter() - self.began,
        )
        self.watch.see(epoch, {**found.named_losses, **figures})
        self._save()
        found = replace(found, notes=tuple(self.watch.notes))
        self.epochs.append(found)
        self._warn_of_loss(found)
        if run.rank == 0:
            self.report(found)

    def _save(self) -> None:
        """Save the run, with the best weights so far and those that it goes on with."""
        folder, watch = self.run.config.save_dir, self.watch
        save_steps(folder, self.run.steps, self._keep_best)
        if saves_here() and BEST in watch.files:
            source, target = folder / LAST / KEPT / FILE_OF_BEST, folder / FILE_OF_BEST
            # a process that was killed here has saved it and not copied it
            if watch.files[BEST] or not self.epochs:
                copy_file(source, target)

    def _keep_best(self) -> None:
        folder, watch = self.run.config.save_dir, self.watch
        kept = folder / NEW / KEPT
        if saves_here():
            kept.mkdir(parents=True, exist_ok=True)
            for name, now in watch.files.items():
                file = kept / f"{name}.ckpt"
                if now:
                    save_weights(file, self.run.net)
                else:
                    copy_file(present(folder) / KEPT / file.name, file)
            as_json(watch.to_dict(), folder / NEW / WATCHED)
        if watch.restore is not None:
            file = kept / f"{watch.restore}.ckpt"
            alike(
                "the best weights",
                lambda: load_weights(self.run.net, file),
                lambda report: {"loaded": report.loaded},
            )

    def _warn_of_loss(self, found: Epoch) -> None:
        broken = {name: loss for name, loss in found.losses.items() if not math.isfinite(loss)}
        if broken and not self.warned:
            self.warned = True
            told = ", ".join(f"{loss} in step {name}" for name, loss in broken.items())
            _LOG.warning(
                "the loss of epoch %d is %s; lower optimizer.learning_rate or give clip_norm, "
                "and see msgrad audit for the weight that is not finite first",
                found.epoch,
                told,
            )

    def on_train_epoch_begin(self, run_context: Any) -> None:
        self.start()

    def on_train_step_end(self, run_context: Any) -> None:
        self.note(next(iter(self.run.steps)), run_context.original_args().net_outputs)

    def on_train_epoch_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        (step,) = self.run.steps.values()
        step.set_epoch(params.cur_epoch_num)
        self.finish(params.cur_epoch_num, step.position.step)
        if self.watch.stopped:
            run_context.request_stop()


def _mean(losses: Sequence[Tensor]) -> float:
    return sum(float(loss.asnumpy().mean()) for loss in losses) / len(losses)


def _stage_of(schedule: Schedule | None, epoch: int, step: int) -> int | None:
    """Return the stage of the step before a position."""
    if schedule is None:
        return None
    return schedule.index((epoch if schedule.unit == "epochs" else step) - 1) + 1
