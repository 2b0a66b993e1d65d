"""What `ms.Model` shows its callbacks: the optimizer among it is that of the step's stage."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from mindspore import nn

_MODEL = "mindspore.train.model"
# frames between `Model.train` and the method of the step that it calls, decorators counted
_DEPTH = 8


class CallbackParams:
    """The `cb_params` of the run that trains a step; nothing where no `ms.Model` does.

    A Model makes them anew for each run, with the optimizer that it was given, which is None for
    a step. It hands them to callbacks only, so they are looked for in the frames that call.
    """

    def __init__(self) -> None:
        self._found: weakref.ref[Any] | None = None

    def look(self, step: nn.Cell) -> None:
        """Find them from inside a method of the step that the Model calls."""
        frame = sys._getframe(1)
        for _ in range(_DEPTH):
            if frame is None:
                return
            if frame.f_globals.get("__name__") == _MODEL:
                params = frame.f_locals.get("cb_params")
                if params is not None and params.get("network") is step:
                    self._found = weakref.ref(params)
                    return
            frame = frame.f_back

    def show(self, optimizer: nn.Cell) -> None:
        """Let callbacks find an optimizer."""
        params = self._found() if self._found is not None else None
        if params is not None:
            params.optimizer = optimizer
