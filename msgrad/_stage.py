"""A stage of a run: what trains, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgrad._errors import ArgumentError, ArgumentTypeError
from msgrad._select import Pattern, show


@dataclass(frozen=True)
class Stage:
    """One fixed set of trainable parameters and of held behaviour, for some epochs or steps.

    With ``train`` these are unfrozen and all else is frozen; with ``freeze`` these are frozen and
    all else is as it was. What the model made untrainable stays so.

    Args:
        train: Patterns of what trains, see `select`.
        freeze: Patterns of what is frozen; give this or ``train``.
        epochs: Length in epochs, 0 or more.
        steps: Length in steps, 0 or more; give at most one of the two. Without any the stage is
            open and lasts to the end of the run.
        statistics: Wholly frozen norm cells keep their statistics, as in `freeze`.
        dropout: In wholly frozen cells dropout is off, as in `freeze`.

    Raises:
        ArgumentError: Both or none of ``train`` and ``freeze``, both lengths, or a negative one.
        ArgumentTypeError: A length is no whole number.

    Examples:
        >>> import msgrad as mg
        >>> mg.Stage(train="head", epochs=2)
        Stage(train='head', epochs=2)
    """

    train: Pattern | None = None
    freeze: Pattern | None = None
    epochs: int | None = None
    steps: int | None = None
    statistics: bool = True
    dropout: bool = True

    def __post_init__(self) -> None:
        if (self.train is None) == (self.freeze is None):
            given = "both" if self.train is not None else "neither"
            raise ArgumentError(f"stage has {given} of train= and freeze=; give one of the two")
        pattern = self.train if self.train is not None else self.freeze
        if isinstance(pattern, (bool, int, float)):
            raise ArgumentTypeError(
                f"stage has {pattern!r} as its pattern; give a name, and the length as epochs="
            )
        if self.epochs is not None and self.steps is not None:
            raise ArgumentError(
                f"stage has epochs={self.epochs!r} and steps={self.steps!r}; give one of the two"
            )
        length = self.epochs if self.epochs is not None else self.steps
        if length is None:
            return
        if isinstance(length, bool) or not isinstance(length, int):
            raise ArgumentTypeError(f"stage is {length!r} {self.unit} long; give a whole number")
        if length < 0:
            raise ArgumentError(f"stage is {length!r} {self.unit} long; give 0 or more")

    @property
    def unit(self) -> Literal["epochs", "steps"] | None:
        """What the length counts, None for an open stage."""
        if self.epochs is not None:
            return "epochs"
        return "steps" if self.steps is not None else None

    @property
    def length(self) -> int | None:
        """The number of epochs or steps, None for an open stage."""
        return self.epochs if self.epochs is not None else self.steps

    def __repr__(self) -> str:
        what = "train" if self.train is not None else "freeze"
        pattern = self.train if self.train is not None else self.freeze
        parts = [f"{what}={show(pattern)}"]
        if self.unit is not None:
            parts.append(f"{self.unit}={self.length}")
        parts += [f"{n}=False" for n in ("statistics", "dropout") if not getattr(self, n)]
        return f"Stage({', '.join(parts)})"


def gradual_stages(layers: Sequence[Pattern], *, epochs: int | Sequence[int]) -> list[Stage]:
    """Make stages that unfreeze a network from its output to its input.

    The first trains the last layer alone, each further one a layer more; the last is open.

    Args:
        layers: Patterns from input to output, one for each layer; what is in none of them is
            frozen.
        epochs: Length of each stage but the last, or one number for each of these.

    Returns:
        As many stages as layers.

    Raises:
        ArgumentError: No layers, or another number of lengths than of stages before the last.

    References:
        J. Howard, S. Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018,
        https://arxiv.org/abs/1801.06146, section 3.3 (gradual unfreezing).

    Examples:
        >>> import msgrad as mg
        >>> mg.gradual_stages(["stem", "body", "head"], epochs=1)
        [Stage(train=['head'], epochs=1), Stage(train=['body', 'head'], epochs=1), \
Stage(train=['stem', 'body', 'head'])]
    """
    if isinstance(layers, str) or not layers:
        raise ArgumentError(f"layers {layers!r} is no list of layers; give one pattern for each")
    count = len(layers) - 1
    lengths = [epochs] * count if isinstance(epochs, int) else list(epochs)
    if len(lengths) != count:
        raise ArgumentError(
            f"epochs has {len(lengths)} lengths for {count} stages before the last; give {count}"
        )
    return [
        Stage(train=list(layers[-1 - number :]), epochs=length)
        for number, length in enumerate([*lengths, None])
    ]
