"""Reads a network: patterns and names, its tree, its values and their bits, its reach."""

# fmt: off
# isort: off

from msgrad.network._fold import fold, fold_cells
from msgrad.network._match import CellMatcher, NetPattern, ParameterMatcher, show
from msgrad.network._names import Names, last_wins, nearest, select_names
from msgrad.network._pattern import parse
from msgrad.network._reach import (
    TRIALS, GradientCell, Reach, by_trials, find_reach, one, random_inputs, reach, silence,
    sorted_reach
)
from msgrad.network._rollback import Rollback, rolled_back, seeds_kept
from msgrad.network._select import CellPattern, Pattern, Selection, select, select_cells, select_one
from msgrad.network._snapshot import (
    Movement, MovementRow, Snapshot, compare_arrays, fingerprint, fingerprint_of
)
from msgrad.network._source import Source, called_by, closure_of, resolved, source_of
from msgrad.network._summary import CellSummary, Summary, inner_network, summary
from msgrad.network._tree import (
    cell_paths, children, collector_paused, core_of, every_cell, forget_compiled, forget_walk,
    is_wrapper, layers_of, one_walk, paths_of, places, recall_compiled, tree_of
)
from msgrad.network._values import (
    bits, copy_of, hidden, hide, lent, norm_of, refuse_lent, rename_hidden, write, writes
)

__all__ = [
    "CellMatcher", "CellPattern", "CellSummary", "GradientCell", "Movement", "MovementRow",
    "Names", "NetPattern", "ParameterMatcher", "Pattern", "Reach", "Rollback", "Selection",
    "Snapshot", "Source", "Summary", "TRIALS", "bits", "by_trials", "called_by", "cell_paths",
    "children", "closure_of", "collector_paused", "compare_arrays", "copy_of", "core_of",
    "every_cell", "find_reach", "fingerprint", "fingerprint_of", "fold", "fold_cells",
    "forget_compiled", "forget_walk", "hidden", "hide", "inner_network", "is_wrapper",
    "last_wins", "layers_of", "lent", "nearest", "norm_of", "one", "one_walk", "parse",
    "paths_of", "places", "random_inputs", "reach", "recall_compiled", "refuse_lent",
    "rename_hidden", "resolved", "rolled_back", "seeds_kept", "select", "select_cells",
    "select_names", "select_one", "show", "silence", "sorted_reach", "source_of", "summary",
    "tree_of", "write", "writes"
]
