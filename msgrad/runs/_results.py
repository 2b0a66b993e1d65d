"""The figures of a run: what each epoch gave, and how far each weight moved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgrad.checkpoints import write_whole
from msgrad.network import Movement


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave.

    Attributes:
        epoch: Its number, from 1.
        epochs: How many the run has.
        steps: Steps done so far.
        losses: The mean loss of each train step, by name.
        figures: What the evaluation found on the batches held out.
        trainable: How many weights each train step trained.
        stage: The stage, from 1; None where the plan has none.
        seconds: How long it took.
        notes: What ended with it, and why: a stage, the run.
    """

    epoch: int
    epochs: int
    steps: int
    losses: Mapping[str, float]
    figures: Mapping[str, float]
    trainable: Mapping[str, int]
    stage: int | None
    seconds: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; the loss of a single step is called ``loss``."""
        left_out = {"losses", "figures", "epochs"} | (set() if self.notes else {"notes"})
        own = {k: v for k, v in vars(self).items() if k not in left_out}
        figures = {**self.named_losses, **self.figures}
        # JSON has neither NaN nor infinity
        plain = {k: v if math.isfinite(v) else str(v) for k, v in figures.items()}
        return {**own, **plain}

    @property
    def named_losses(self) -> dict[str, float]:
        """The losses as they are shown."""
        if len(self.losses) == 1:
            return {"loss": next(iter(self.losses.values()))}
        return {f"{name} loss": loss for name, loss in self.losses.items()}


@dataclass(frozen=True)
class RunResult:
    """What a run found.

    Attributes:
        device: The device that it ran on.
        mindspore: The version of MindSpore.
        epochs: What each epoch gave.
        movement: How far each parameter moved, from where this run began or was resumed.
        held: The weights that no stage trained and no update changed.
        best: The best epoch, whose weights are ``best.ckpt``: ``metric``, ``mode``, ``epoch``,
            ``value``; None where none was kept.
    """

    device: str
    mindspore: str
    epochs: tuple[Epoch, ...]
    movement: Movement
    held: tuple[str, ...]
    best: Mapping[str, Any] | None = None

    @property
    def broken(self) -> list[str]:
        """The held weights that moved: there should be none."""
        return [
            row.name for row in self.movement.rows if row.bits_changed and row.name in self.held
        ]

    def to_json(self) -> str:
        """Return all of it as JSON."""
        rows = json.loads(self.movement.to_json())["rows"]
        content = {
            "device": self.device,
            "mindspore": self.mindspore,
            "epochs": [epoch.to_dict() for epoch in self.epochs],
            **({"best": dict(self.best)} if self.best is not None else {}),
            "layers": [{**row, "held": row["name"] in self.held} for row in rows],
        }
        return json.dumps(content, indent=2)

    def save(self, path: Path) -> None:
        """Write them, whole or not at all.

        Raises:
            CheckpointError: The file cannot be written.
        """
        text = self.to_json() + "\n"
        write_whole(path, lambda part: part.write_text(text, encoding="utf-8"), "json")
