"""MindSpore itself: its device, how it runs, compiled graphs as data, its ranks."""

# fmt: off
# isort: off

from msgrad.backend._device import use_device, why_not_ascend
from msgrad.backend._execution import (
    DRY_RUN, computes, latches, release_latches, running_in, sharding_mode
)
from msgrad.backend._graph import Graph, Node, called_graph, compiled_graph, forget
from msgrad.backend._ranks import (
    alike, all_have, compare, of_rank_0, processes, ranks_together, refuse, saves_here
)
from msgrad.backend._version import TESTED, is_tested

__all__ = [
    "DRY_RUN", "Graph", "Node", "TESTED", "alike", "all_have", "called_graph", "compare",
    "compiled_graph", "computes", "forget", "is_tested", "latches", "of_rank_0", "processes",
    "ranks_together", "refuse", "release_latches", "running_in", "saves_here", "sharding_mode",
    "use_device", "why_not_ascend"
]
