"""The frozen part of a network computed once, then read."""

from msgrad.replay._replay import Replay, replay_frozen

__all__ = [
    "Replay",
    "replay_frozen",
]
