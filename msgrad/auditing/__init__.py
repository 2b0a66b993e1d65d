"""What moved and why: audit, explanation, monitor, and their table, picture and page."""

from msgrad.auditing._audit import Audit, audit
from msgrad.auditing._explain import Explanation, explain
from msgrad.auditing._monitor import WeightMonitor
from msgrad.auditing._record import LayerRecord

__all__ = [
    "Audit",
    "Explanation",
    "LayerRecord",
    "WeightMonitor",
    "audit",
    "explain",
]
