"""Plan files that are refused, read and checked against a network."""

from __future__ import annotations

from pathlib import Path

import pytest

import msgrad as mg
from tests.nets.plan_nets import Small


def refused(text: str) -> mg.PlanError:
    """Return the error for a plan file."""
    Path("plan.yaml").write_text(text, encoding="utf-8")
    Path("mine.py").write_text("def grow(w):\n    return w * 2\n", encoding="utf-8")
    with pytest.raises(mg.PlanError, match=r"plan\.yaml") as caught:
        mg.Plan.from_file("plan.yaml").check(Small())
    return caught.value
