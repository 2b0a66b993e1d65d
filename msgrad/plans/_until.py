"""A metric that should improve: by which an epoch is the best, or a stage or a run ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgrad.plans._document import KeyPath
from msgrad.plans._schema import SWITCH, TEXT, Checker, number, one_of, whole

MODES = ("min", "max")
UNTIL_KINDS = {
    "metric": TEXT,
    "mode": one_of(*MODES),
    "patience": whole(1),
    "min_delta": number(),
    "restore_best": SWITCH,
}
# What other tools call these keys.
_MEANT = {
    "monitor": "write metric",
    "restore_best_weights": "write restore_best",
    "direction": "write mode: min or mode: max",
    "epochs": "write it in the stage, beside until: it is the longest that the stage may last",
}


@dataclass(frozen=True)
class Until:
    """A metric, and what counts as its improvement.

    Attributes:
        metric: A figure of the evaluation, or ``loss``.
        mode: ``min`` or ``max``; None is what the task says of it.
        patience: Epochs without an improvement that are one too many.
        min_delta: Improvements up to this size do not count.
        restore_best: Whether the weights of the best epoch are brought back at the end.

    Examples:
        >>> Until("accuracy").to_dict()
        {'metric': 'accuracy'}
    """

    metric: str
    mode: str | None = None
    patience: int = 1
    min_delta: float = 0.0
    restore_best: bool = False

    def better(self, value: float, best: float | None) -> bool:
        """Say whether a value improves on the best so far; one that is not finite never does."""
        if not math.isfinite(value):
            return False
        gain = 0.0 if best is None else value - best if self.mode == "max" else best - value
        return best is None or gain > self.min_delta

    def to_dict(self) -> dict[str, Any]:
        """Return it as it could be written."""
        first = Until(self.metric)
        return {k: v for k, v in vars(self).items() if k == "metric" or v != getattr(first, k)}


def read_until(checker: Checker, path: KeyPath, value: Any, owner: str) -> Until | None:
    """Read a metric, or a mapping with the metric and more; what is wrong is noted."""
    if isinstance(value, str) and value:
        return Until(value)
    if not isinstance(value, Mapping):
        message = f"{owner} {value!r} names no metric; write accuracy, or {{metric: accuracy}}"
        checker.note(path, message)
        return None
    found = checker.mapping(path, value, UNTIL_KINDS, owner, _MEANT)
    if "metric" not in value:
        checker.note(path, f"{owner} has no metric; add metric: accuracy")
    return Until(**found) if "metric" in found else None
