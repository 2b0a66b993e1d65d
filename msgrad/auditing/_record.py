"""What a monitor records of one layer at one step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LayerRecord:
    """How far one layer has moved at one step; all are Euclidean norms over its weights.

    Attributes:
        step: The number of the step, from 1.
        layer: The path of the cell that owns the weights.
        since_start: Change since the monitor was made.
        since_last: Change since the last record, or the start.
        update: Change in this one step; None where the monitor did not see its beginning.
        weight: Norm of the weights.
        gradient: Norm of the gradient as it came to the optimizer; None where no optimizer holds
            a weight of the layer, or none is known.

    Examples:
        >>> LayerRecord(100, "fc", 0.5, 0.1, 0.01, 2.0, None).ratio
        0.005
    """

    step: int
    layer: str
    since_start: float
    since_last: float
    update: float | None
    weight: float
    gradient: float | None

    @property
    def ratio(self) -> float | None:
        """The update relative to the weights; None where the update is not known."""
        if self.update is None:
            return None
        return self.update / self.weight if self.weight else math.nan
