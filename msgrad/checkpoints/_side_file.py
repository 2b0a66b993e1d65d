"""The file beside saved weights: what is in them, by which plan, and on which base they go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mindspore import Tensor

from msgrad._files import as_json
from msgrad.errors import ArgumentError, ArgumentTypeError, CheckpointError
from msgrad.network import fingerprint_of

_FORMAT = 1
# of one weight of the base: enough to tell which one differs
_DIGITS = 16


@dataclass(frozen=True)
class SideFile:
    """What stands in the file beside saved weights.

    Attributes:
        weights: Type and shape of each saved weight by its name.
        fingerprint: Fingerprint of the saved weights, by which file and side file belong together.
        base: Fingerprint of everything that was not saved, under ``fingerprint``, and the beginning
            of that of each weight in it, under ``weights``.
        plan: The plan by which the network was trained, or None.
        format: Version of this format.
    """

    weights: dict[str, str]
    fingerprint: str
    base: dict[str, Any]
    plan: Any = None
    format: int = _FORMAT

    def write(self, path: str | Path) -> None:
        """Write it beside the weights.

        Raises:
            CheckpointError: The file cannot be written.
        """
        as_json(asdict(self), side_path(path))

    def check_belongs(self, path: str | Path, values: Mapping[str, Tensor]) -> None:
        """Refuse values that are not those it was written for.

        Raises:
            CheckpointError: They are others: one of the two files was replaced or is damaged.
        """
        if set(values) != set(self.weights) or fingerprint_of(values) != self.fingerprint:
            raise self.other_values(path)

    def other_values(self, path: str | Path) -> CheckpointError:
        """Return the error for a file of other values than it was written for."""
        return CheckpointError(
            f"path {str(path)!r} holds other values than {str(side_path(path))!r} says, one of "
            "them was replaced or damaged; save both again, or delete the second to load the "
            "first as a checkpoint like any other"
        )

    def other_base(self, rest: Mapping[str, Tensor]) -> list[str]:
        """Name the weights of the base that are missing or have other bits in a network.

        Args:
            rest: The weights of the network that are not saved.
        """
        base = self.base["weights"]
        rest = {name: rest[name] for name in base if name in rest}
        if len(rest) == len(base) and fingerprint_of(rest) == self.base["fingerprint"]:
            return []
        now = _digests(rest)
        return [name for name in base if now.get(name) != base[name]]


def describe(saved: Mapping[str, Tensor], rest: Mapping[str, Tensor], plan: object) -> SideFile:
    """Describe saved weights and the base that they go on.

    Raises:
        ArgumentTypeError: The plan has no ``to_dict``.
        ArgumentError: What it returns cannot be written as JSON.
    """
    base = {"fingerprint": fingerprint_of(rest), "weights": _digests(rest)}
    kinds = {name: kind_of(value) for name, value in saved.items()}
    return SideFile(kinds, fingerprint_of(saved), base, _plan_as_json(plan))


def read_side_file(path: str | Path) -> SideFile | None:
    """Read the side file of saved weights; None where there is none.

    Raises:
        CheckpointError: It cannot be read.
    """
    beside = side_path(path)
    if not beside.is_file():
        return None
    try:
        side = SideFile(**json.loads(beside.read_text(encoding="utf-8")))
        later = side.format > _FORMAT
        _ = side.base["fingerprint"], dict(side.base["weights"]), dict(side.weights)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"path {str(beside)!r} is damaged or was not written by save_trainable; delete it to "
            "load the file beside it as a checkpoint like any other"
        ) from error
    if later:
        raise CheckpointError(
            f"path {str(beside)!r} was written by a later msgrad; install that one"
        )
    return side


def side_path(path: str | Path) -> Path:
    """Return where the side file of a file stands."""
    return Path(f"{path}.msgrad.json")


def kind_of(value: Tensor) -> str:
    """Return type and shape as a text."""
    return f"{str(value.dtype).lower()} {tuple(value.shape)}"


def _digests(values: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: fingerprint_of({name: value})[:_DIGITS] for name, value in values.items()}


def _plan_as_json(plan: object) -> Any:
    if plan is None:
        return None
    to_dict = getattr(plan, "to_dict", None)
    if not callable(to_dict):
        raise ArgumentTypeError(
            f"plan {type(plan).__name__} has no to_dict(); give a Plan, or leave plan out"
        )
    try:
        return json.loads(json.dumps(to_dict()))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"plan {type(plan).__name__} cannot be written as JSON: {error}; let to_dict() return "
            "dicts, lists, strings and numbers"
        ) from error
