"""Rules and stages from a dict or YAML, resolved in a network, put in force."""

# fmt: off
# isort: off

from msgrad.plans._document import Document, KeyPath, parse_document, read_document
from msgrad.plans._keys import AuditSettings
from msgrad.plans._plan import Applied, Plan
from msgrad.plans._resolve import ResolvedRules
from msgrad.plans._rule import PlanRule
from msgrad.plans._schema import (
    MAPPING, PATTERNS, SWITCH, TEXT, Checker, Kind, UnfitError, number, one_of, whole
)
from msgrad.plans._stage import PlanStage, stage_ends
from msgrad.plans._until import MODES, Until, read_until
from msgrad.plans._user_code import run_file

__all__ = [
    "Applied", "AuditSettings", "Checker", "Document", "KeyPath", "Kind", "MAPPING", "MODES",
    "PATTERNS", "Plan", "PlanRule", "PlanStage", "ResolvedRules", "SWITCH", "TEXT",
    "UnfitError", "Until", "number", "one_of", "parse_document", "read_document", "read_until",
    "run_file", "stage_ends", "whole"
]
