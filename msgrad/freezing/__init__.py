"""What may not move: claims on parameters, held behaviour, what cannot be held."""

# fmt: off
# isort: off

from msgrad.freezing._behaviour import (
    apply_behaviour, asked_to_train, is_held, may_have_moved, note_moving
)
from msgrad.freezing._claims import (
    BY_FLAG, Claim, Record, claims_changed, claims_version, is_norm, lift_loaded, records_of
)
from msgrad.freezing._freeze import (
    Freeze, Undoable, freeze, frozen_state, is_frozen, make_claims, unfreeze
)
from msgrad.freezing._unheld import active_dropout, cannot_hold
from msgrad.freezing._writes import forward_writes, own_methods

__all__ = [
    "BY_FLAG", "Claim", "Freeze", "Record", "Undoable", "active_dropout", "apply_behaviour",
    "asked_to_train", "cannot_hold", "claims_changed", "claims_version", "forward_writes",
    "freeze", "frozen_state", "is_frozen", "is_held", "is_norm", "lift_loaded", "make_claims",
    "may_have_moved", "note_moving", "own_methods", "records_of", "unfreeze"
]
