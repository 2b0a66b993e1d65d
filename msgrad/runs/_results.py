"""The figures of a run: what each epoch gave, and how far each weight moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgrad._files import as_json
from msgrad._text import cut, plain_table
from msgrad.network import Movement, MovementRow, fold_cells
from msgrad.runs._folder import BEST, CONFIG, FIGURES, LAST, WEIGHTS

_MOST_LINES = 46  # with the head


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

    Examples:
        >>> print(Epoch(2, 5, 40, {"train": 0.5}, {"accuracy": 0.9}, {"train": 4}, None, 1.25))
        epoch 2/5  loss 0.5000  accuracy 0.900  1.2 s
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

    def __str__(self) -> str:
        parts = [f"epoch {self.epoch:{len(str(self.epochs))}}/{self.epochs}"]
        if self.stage is not None:
            parts.append(f"stage {self.stage}")
        parts += [f"{name} {value:.4f}" for name, value in self.named_losses.items()]
        parts += [f"{name} {value:.3f}" for name, value in self.figures.items()]
        return "\n".join(["  ".join([*parts, f"{self.seconds:.1f} s"]), *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; the loss of a single step is called ``loss``."""
        left_out = {"losses", "figures", "epochs"} | (set() if self.notes else {"notes"})
        own = {k: v for k, v in vars(self).items() if k not in left_out}
        figures = {**self.named_losses, **self.figures}
        return {**own, **figures}

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
        folder: Where the run lies.

    Examples:
        >>> from msgrad import Movement, MovementRow
        >>> movement = Movement((MovementRow("0.bias", (2,), 0.0, 0.0, 0),))
        >>> epoch = Epoch(1, 1, 40, {"train": 0.5}, {}, {"train": 4}, None, 1.25)
        >>> print(RunResult("CPU", "2.10.0", (epoch,), movement, ("0.bias",)))
        weights  n                    largest change
        0        1  held, bits equal  0
        held: 1 of 1 kept their bits
        wrote ./: config.yaml, figures.json, weights.ckpt, last/
    """

    device: str
    mindspore: str
    epochs: tuple[Epoch, ...]
    movement: Movement
    held: tuple[str, ...]
    best: Mapping[str, Any] | None = None
    folder: Path = Path()

    @property
    def broken(self) -> list[str]:
        """The held weights that moved: there should be none."""
        return [
            row.name for row in self.movement.rows if row.bits_changed and row.name in self.held
        ]

    def __str__(self) -> str:
        rows = {row.name: row for row in self.movement.rows}
        kinds = {name: self._state(row) for name, row in rows.items()}
        lines = [
            (pattern, str(len(names)), kinds[names[0]], _most([rows[name] for name in names]))
            for pattern, names in fold_cells(kinds).items()
        ]
        done = self.epochs[0].epoch - 1
        change = f"largest change since epoch {done}" if done else "largest change"
        table = plain_table(("weights", "n", "", change), lines).splitlines()
        text = cut(table, _MOST_LINES, f"… and {{}} more lines; {FIGURES} has them all")
        if self.held:
            kept = f"{len(self.held) - len(self.broken)} of {len(self.held)} kept their bits"
            moved = f"; moved: {', '.join(self.broken)}" if self.broken else ""
            text.append(f"held: {kept}{moved}")
        files = [CONFIG, FIGURES, WEIGHTS]
        if (best := self.best) is not None:
            files.append(BEST)
            told = f"{best['metric']} {best['value']:.4g} in epoch {best['epoch']}"
            text.append(f"best: {told}, {BEST}")
        return "\n".join([*text, f"wrote {self.folder}/: {', '.join(files)}, {LAST}/"])

    def _state(self, row: MovementRow) -> str:
        if row.name in self.held:
            return "held, MOVED" if row.bits_changed else "held, bits equal"
        return "moved" if row.bits_changed else "bits equal"

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all of it as JSON, and write it to a file where a path is given.

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.

        Raises:
            CheckpointError: The file cannot be written.
        """
        rows = [asdict(row) for row in self.movement.rows]
        content = {
            "device": self.device,
            "mindspore": self.mindspore,
            "epochs": [epoch.to_dict() for epoch in self.epochs],
            **({"best": dict(self.best)} if self.best is not None else {}),
            "layers": [{**row, "held": row["name"] in self.held} for row in rows],
        }
        return as_json(content, path)


def _most(rows: Sequence[MovementRow]) -> str:
    return f"{max(row.max_change for row in rows):.4g}"
