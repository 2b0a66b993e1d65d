"""Two checkpoint files compared: which weights moved, and how far."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mindspore import Tensor

from msgrad._files import as_json
from msgrad.checkpoints._files import read_checkpoint, state_among
from msgrad.errors import CheckpointError
from msgrad.network import Movement, MovementRow, compare_arrays, copy_of, select_names


@dataclass(frozen=True, repr=False)
class CheckpointMovement(Movement):
    """The movement between two checkpoints; printed, it is a table.

    Attributes:
        rows: One row per weight that both files have in one shape and type, in the order of the
            first file.
        only_in_first: Weights that the second file does not have.
        only_in_second: Weights that the first file does not have.
        unlike: Weights of another shape or type, as ``name: float32 (8, 4) / float16 (8, 4)``.
        state: Names of optimizer state and counters in either file, which are not compared.

    Examples:
        >>> CheckpointMovement((), only_in_first=("head.weight",)).equal
        False
    """

    only_in_first: tuple[str, ...] = ()
    only_in_second: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both files have the same weights with the same bits."""
        return not (self.moved or self.only_in_first or self.only_in_second or self.unlike)

    @property
    def changed(self) -> list[str]:
        """The names of the weights that are not the same in both files, for whatever reason."""
        unlike = [text.partition(":")[0] for text in self.unlike]
        return [*self.moved, *unlike, *self.only_in_first, *self.only_in_second]

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all of it as JSON, and write it to a file where a path is given.

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.
        """
        content = json.loads(super().to_json()) | {
            "only_in_first": self.only_in_first,
            "only_in_second": self.only_in_second,
            "unlike": self.unlike,
            "state": self.state,
        }
        return as_json(content, path)

    def __str__(self) -> str:
        lines = [super().__str__()]
        lines += [f"only in the first file: {name}" for name in self.only_in_first]
        lines += [f"only in the second file: {name}" for name in self.only_in_second]
        lines += [f"of another shape or type: {text}" for text in self.unlike]
        if self.state:
            lines.append(f"{len(self.state)} values of optimizer state were not compared")
        return "\n".join(lines)


def diff_checkpoints(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *patterns: str
) -> CheckpointMovement:
    """Compare the weights in two checkpoint files, bit by bit.

    Optimizer state and counters are told apart by their names and not compared. A weight that only
    one file has, or that has another shape or type, is named. A ``.ckpt`` that was cut off exactly
    between two weights cannot be told from a shorter one.

    Args:
        a: The first file, ``.ckpt`` or safetensors.
        b: The second file, of either kind.
        *patterns: Which weights, see `select`; patterns over the names in the files; none means
            all.

    Returns:
        The movement from the first to the second.

    Raises:
        CheckpointError: A file is missing, damaged or no checkpoint, or holds no weight.
        NoMatchError: A pattern selects nothing.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import Tensor, nn, ops
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, weight_init="zeros")
        >>> ms.save_checkpoint(net, "before.ckpt")
        >>> _ = ops.assign(net.weight, Tensor([[0.0, 0.5]]))
        >>> ms.save_checkpoint(net, "after.safetensors", format="safetensors")
        >>> mg.diff_checkpoints("before.ckpt", "after.safetensors").moved
        ['weight']
    """
    first, second = read_checkpoint(a), read_checkpoint(b)
    everything = dict.fromkeys([*first, *second])
    state = state_among(everything)
    weights = [name for name in everything if name not in state]
    if not weights:
        raise CheckpointError(f"path {str(a)!r} holds no weight, nor does {str(b)!r}; give others")
    chosen = select_names(weights, *(patterns or ("*",)))
    both = [name for name in chosen if name in first and name in second]
    alike = [name for name in both if _kind(first[name]) == _kind(second[name])]
    return CheckpointMovement(
        tuple(_row(name, first, second) for name in alike),
        tuple(name for name in chosen if name not in second),
        tuple(name for name in chosen if name not in first),
        tuple(
            f"{name}: {_kind(first[name])} / {_kind(second[name])}"
            for name in both
            if name not in set(alike)
        ),
        tuple(name for name in everything if name in state),
    )


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).lower()} {tuple(value.shape)}"


def _row(name: str, first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> MovementRow:
    return compare_arrays(name, copy_of(first[name]), copy_of(second[name]))
