"""A change of a network that can be taken back, exactly and once."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

Kind = TypeVar("Kind", bound="Undoable")


class Undoable:
    """What is done to a network and can be taken back; as a context, at its end.

    Args:
        undo: Takes it back.
    """

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    @property
    def undone(self) -> bool:
        """Whether it was taken back."""
        return self._undo is None

    def undo(self) -> None:
        """Take back what this changed, exactly; a second time does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()
