"""Files of weights: read, written whole or not at all, compared."""

from msgrad.checkpoints._diff import CheckpointMovement, diff_checkpoints
from msgrad.checkpoints._files import read_file, write_file, write_values
from msgrad.checkpoints._load import LoadReport, load_weights
from msgrad.checkpoints._save import save_trainable

# fmt: off
__all__ = [
    "CheckpointMovement", "LoadReport", "diff_checkpoints", "load_weights", "read_file",
    "save_trainable", "write_file", "write_values"
]
# fmt: on
