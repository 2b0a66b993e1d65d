"""What moved and why: audit, explanation, monitor, and their table, picture and page."""

from msgrad.auditing._audit import Audit, audit
from msgrad.auditing._explain import Explanation, Reason, explain
from msgrad.auditing._monitor import WeightMonitor
from msgrad.auditing._record import LayerRecord
from msgrad.auditing._rows import AuditRow, Finding

# fmt: off
__all__ = [
    "Audit", "AuditRow", "Explanation", "Finding", "LayerRecord", "Reason", "WeightMonitor",
    "audit", "explain"
]
# fmt: on
