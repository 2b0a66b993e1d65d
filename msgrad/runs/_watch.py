"""What a run watches: the best epoch, and whether a metric of a stage or the run still improves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgrad._text import count
from msgrad.backend import of_rank_0
from msgrad.errors import PlanError
from msgrad.network import nearest
from msgrad.plans import Until, stage_ends
from msgrad.runs._build import Run

BEST, STAGE, RUN = "best", "stage", "early_stop"


@dataclass
class Tracker:
    """One metric so far.

    Attributes:
        goal: The metric and what counts as its improvement.
        best: The best value; None before the first that is finite.
        epoch: Its epoch.
        waited: Epochs without an improvement since.
    """

    goal: Until
    best: float | None = None
    epoch: int = 0
    waited: int = 0

    def see(self, epoch: int, value: float) -> None:
        """Note the value of an epoch."""
        if self.goal.better(value, self.best):
            self.best, self.epoch, self.waited = value, epoch, 0
        else:
            self.waited += 1

    @property
    def over(self) -> bool:
        """Whether it has not improved for too long."""
        return self.waited >= self.goal.patience

    def why(self) -> str:
        """Say why it is over."""
        best = "" if self.best is None else f", the best was {self.best:.4g} in epoch {self.epoch}"
        return f"{self.goal.metric} did not improve for {count(self.waited, 'epoch')}{best}"


@dataclass
class Watch:
    """The metrics of a run, as its saves keep them.

    Attributes:
        run: The run.
        evaluated: Whether it has batches held out.
        trackers: By name: of the best epoch, of the stage, of the run.
        ended: The epoch at which stages ended because their metric did not improve.
        stopped: Why the run is over before its last epoch; "" where it is not.
        notes: What is to be told of the epoch that ended last.
        restore: The tracker whose best weights are to be brought back now.
        files: The trackers whose best weights are kept, and whether they are those of this epoch.
    """

    run: Run
    evaluated: bool = True
    trackers: dict[str, Tracker] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    stopped: str = ""
    notes: list[str] = field(default_factory=list)
    restore: str | None = None
    files: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        goals = {BEST: self._best(), RUN: self.run.config.early_stop}
        for name, goal in goals.items():
            if goal is not None:
                self.trackers[name] = Tracker(self._with_mode(goal, name))
        for number, stage in enumerate(self.run.config.plan.written_stages, 1):
            if stage.until is not None:
                self._with_mode(stage.until, f"until of stage {number}")
        self._enter(0)

    def see(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Look at the figures of an epoch: the best so far, a stage that ends, a run that does."""
        self.notes, self.restore = [], None
        values = of_rank_0([self._value(tracker, figures) for tracker in self.trackers.values()])
        for tracker, value in zip(self.trackers.values(), values, strict=True):
            tracker.see(epoch, value)
        self.files = {
            name: tracker.epoch == epoch
            for name, tracker in self.trackers.items()
            if tracker.epoch and (name == BEST or tracker.goal.restore_best)
        }
        at_the_end = epoch >= self.run.config.epoch_size
        self._see_stage(epoch, at_the_end=at_the_end)
        own = self.trackers.get(RUN)
        if own is not None and own.over and not at_the_end:
            self.stopped = own.why()
        if own is not None and own.goal.restore_best and (self.stopped or at_the_end):
            self._bring_back(RUN, epoch)
        if self.stopped:
            self.notes.insert(0, f"the run ends: {self.stopped}")

    def _see_stage(self, epoch: int, *, at_the_end: bool) -> None:
        tracker, schedule = self.trackers.get(STAGE), self.run.schedule
        if schedule is None or schedule.unit != "epochs":
            return
        number = schedule.index(epoch - 1)
        last = number == len(schedule.stages) - 1
        if tracker is not None and tracker.over and not at_the_end:
            if last:
                self.stopped = tracker.why()
            else:
                self.ended[number] = epoch
                schedule.set_ends(self.ends())
                self.notes.append(f"stage {number + 1} ends: {tracker.why()}")
        over = at_the_end or bool(self.stopped) or schedule.index(epoch) != number
        if tracker is not None and over and tracker.goal.restore_best:
            self._bring_back(STAGE, epoch)
        if schedule.index(epoch) != number:
            self._enter(epoch)

    def _bring_back(self, name: str, epoch: int) -> None:
        best = self.trackers[name].epoch
        self.restore = name if 0 < best < epoch else None
        if self.restore is not None:
            self.notes.append(f"the weights are those of epoch {best} again")

    def _enter(self, epoch: int) -> None:
        """Watch the metric of the stage that begins behind an epoch."""
        self.trackers.pop(STAGE, None)
        stages, schedule = self.run.config.plan.written_stages, self.run.schedule
        if schedule is None or schedule.unit != "epochs":
            return
        goal = stages[schedule.index(epoch)].until
        if goal is not None:
            self.trackers[STAGE] = Tracker(self._with_mode(goal, "until"))

    def ends(self) -> list[int]:
        """Return the epoch with which each stage ends, as far as is known."""
        config = self.run.config
        return stage_ends(config.plan.written_stages, config.epoch_size, self.ended)

    def _value(self, tracker: Tracker, figures: Mapping[str, float]) -> float:
        metric = tracker.goal.metric
        if metric not in figures:
            raise PlanError(_unknown(metric, figures, "the run watches it"))
        return float(figures[metric])

    def _best(self) -> Until | None:
        """Return by what the best epoch is chosen."""
        given = self.run.config.best
        if given is not None:
            return given or None
        metrics = self._metrics()
        return Until(next(iter(metrics))) if metrics else None

    def _metrics(self) -> Mapping[str, str] | None:
        """Return the figures of the evaluation and which values are better; None: not said."""
        return self.run.task.metrics if self.evaluated else {}

    def _with_mode(self, goal: Until, owner: str) -> Until:
        """Fill in which values are better.

        Raises:
            PlanError: The metric is not known, or nothing says which values are better.
        """
        metrics, steps = self._metrics(), list(self.run.steps)
        losses = ["loss"] if len(steps) == 1 else [f"{name} loss" for name in steps]
        known = {**(metrics or {}), **dict.fromkeys(losses, "min")}
        # a task that evaluates by itself may return figures that it does not name
        if goal.metric not in known and metrics is not None:
            raise PlanError(_unknown(goal.metric, known, owner))
        mode = goal.mode or known.get(goal.metric)
        if mode is None:
            raise PlanError(
                f"{owner} {goal.metric!r} does not say which values are better; write mode: max "
                f"or mode: min, or METRICS = {{{goal.metric!r}: 'max'}} in the task"
            )
        return replace(goal, mode=mode)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best epoch so far: metric, mode, epoch, value; None where none is kept."""
        tracker = self.trackers.get(BEST)
        if tracker is None or not tracker.epoch:
            return None
        goal = tracker.goal
        own = {"metric": goal.metric, "mode": goal.mode}
        return {**own, "epoch": tracker.epoch, "value": tracker.best}

    def to_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {
            "ended": {str(number): epoch for number, epoch in self.ended.items()},
            "trackers": {
                name: {**vars(tracker), "goal": tracker.goal.to_dict()}
                for name, tracker in self.trackers.items()
            },
        }

    def load(self, saved: Mapping[str, Any], epoch: int) -> None:
        """Go on from what a save kept, at an epoch; a metric that is another by now begins anew.

        Raises:
            PlanError: The run ended there.
        """
        self.ended = {int(number): end for number, end in saved.get("ended", {}).items()}
        if self.run.schedule is not None and self.run.schedule.unit == "epochs":
            self.run.schedule.set_ends(self.ends())
        self._enter(epoch)
        for name, tracker in self.trackers.items():
            own = saved.get("trackers", {}).get(name)
            if own and _same(Until(**own["goal"]), tracker.goal):
                self.trackers[name] = Tracker(**{**own, "goal": tracker.goal})
        over = [t for name, t in self.trackers.items() if name != BEST and t.over]
        if over:
            raise PlanError(
                f"the run ended at epoch {epoch}: {over[0].why()}; give a larger patience, or drop "
                "early_stop or until, to go on"
            )


def _same(one: Until, other: Until) -> bool:
    return replace(one, patience=1, restore_best=False) == replace(
        other, patience=1, restore_best=False
    )


def _unknown(metric: str, known: Mapping[str, Any], owner: str) -> str:
    near = nearest(metric, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"metric {metric!r} is no figure of an epoch ({owner}); {hint}"
