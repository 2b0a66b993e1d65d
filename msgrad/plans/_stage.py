"""A stage of a plan as it was written, before a network says what the rest is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.optim import check_settings
from msgrad.plans._document import KeyPath
from msgrad.plans._rule import written
from msgrad.plans._schema import PATTERNS, SWITCH, Kind, UnfitError, number, whole
from msgrad.plans._until import Until

REST = "the rest"


def read_keywords(value: Any) -> dict[str, Any]:
    """Read the keywords of the optimizer of a stage."""
    try:
        return check_settings(None, value)
    except (ArgumentError, ArgumentTypeError) as error:
        raise UnfitError(f"cannot be used: {error}") from None


LENGTHS = ("epochs", "steps")
STAGE_KINDS = {
    "train": PATTERNS,
    "freeze": PATTERNS,
    "epochs": whole(),
    "until": Kind(lambda value: value),
    "steps": whole(),
    "cumulative": SWITCH,
    "statistics": SWITCH,
    "dropout": SWITCH,
    "lr": number(),
    "optimizer": Kind(read_keywords),
}


@dataclass(frozen=True)
class PlanStage:
    """One stage of a plan.

    Attributes:
        train: Patterns of what trains, or none.
        freeze: Patterns of what is frozen, or none.
        epochs: Length in epochs.
        steps: Length in steps.
        until: The metric that ends it where it does not improve any more; ``epochs`` is then the
            longest that it may last.
        cumulative: Whether it also trains what the stages before it trained.
        statistics: As in `Stage`; None where it was not given.
        dropout: As in `Stage`; None where it was not given.
        lr: Rate of the stage, as in `Stage`.
        optimizer: Further keywords of its optimizer, as in `Stage`.
        number: Its position among the stages, from 1.
        location: Where it stands: ``plan.yaml:14``, or nothing.
        path: Where it stands in its document.

    Examples:
        >>> PlanStage(train=("head",), epochs=2).to_dict()
        {'train': 'head', 'epochs': 2}
    """

    train: tuple[Any, ...] = ()
    freeze: tuple[Any, ...] = ()
    epochs: int | None = None
    steps: int | None = None
    until: Until | None = None
    cumulative: bool = False
    statistics: bool | None = None
    dropout: bool | None = None
    lr: float | None = None
    optimizer: Mapping[str, Any] | None = None
    number: int = field(default=1, compare=False)
    location: str = field(default="", compare=False)
    path: KeyPath = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """What to call it."""
        return f"stage {self.number}"

    @property
    def label(self) -> str:
        """Its name, and the line of the file where it stands."""
        return f"{self.name} ({self.location})" if self.location else f"{self.name} of the plan"

    @property
    def rest(self) -> bool:
        """Whether it trains what no stage before it trained."""
        return self.train == (REST,)

    @property
    def unit(self) -> Literal["epochs", "steps"] | None:
        """What its length counts, None for an open stage."""
        if self.epochs is not None:
            return "epochs"
        return "steps" if self.steps is not None else None

    @property
    def length(self) -> int | None:
        """The number of epochs or steps, None for an open stage."""
        return self.epochs if self.epochs is not None else self.steps

    def to_dict(self) -> dict[str, Any]:
        """Return it as it could be written."""
        what = "train" if self.train else "freeze"
        own = {what: written(self.train or self.freeze)}
        for name in ("epochs", "steps", "statistics", "dropout", "lr", "optimizer"):
            if getattr(self, name) is not None:
                own[name] = getattr(self, name)
        if self.until is not None:
            own["until"] = self.until.to_dict()
        return {**own, **({"cumulative": True} if self.cumulative else {})}


def stage_ends(
    stages: Sequence[PlanStage], epochs: int, ended: Mapping[int, int] | None = None
) -> list[int]:
    """Return the epoch with which each stage ends at the latest.

    Args:
        stages: The stages, counted in epochs.
        epochs: Length of the run.
        ended: The epoch with which stages ended already, by their index.

    Examples:
        >>> two = [PlanStage(("a",), until=Until("loss")), PlanStage(("b",), epochs=3)]
        >>> stage_ends(two, 10), stage_ends(two, 10, {0: 2})
        ([7, 10], [2, 5])
    """
    ends: list[int] = []
    for index, stage in enumerate(stages):
        begin = ends[-1] if ends else 0
        if ended is not None and index in ended:
            ends.append(ended[index])
        elif stage.epochs is not None:
            ends.append(begin + stage.epochs)
        else:
            # as long as leaves the later ones their epochs
            later = sum(1 if s.epochs is None else s.epochs for s in stages[index + 1 :])
            ends.append(max(begin + 1, epochs - later))
    return ends
