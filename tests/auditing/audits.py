"""Audits made by hand, for the reports about them."""

from __future__ import annotations

from dataclasses import replace

from msgrad.auditing import Audit
from msgrad.auditing._rows import AuditRow, Finding

_TRAINED = AuditRow(
    name="",
    shape=(8, 8),
    dtype="float32",
    rule="",
    requires_grad=True,
    in_optimizer=True,
    lr=0.1,
    weight_decay=0.01,
    gradient=0.5,
    max_change=0.02,
    l2=0.1,
    bits_changed=64,
    state_changed=True,
    verdict="trained",
    reason="it moved 0.02",
)
DEAF = "no gradient reaches it: StopGradient at 'neck' cuts it off"


def trained(name: str, **facts: object) -> AuditRow:
    return replace(_TRAINED, name=name, **facts)


def held(name: str, by: str = "freeze('conv1')", **facts: object) -> AuditRow:
    row = replace(_TRAINED, name=name, rule=by, requires_grad=False, in_optimizer=False)
    still = {"lr": None, "weight_decay": None, "max_change": 0.0, "l2": 0.0, "bits_changed": 0}
    row = replace(row, verdict="held", reason=f"frozen by {by}", state_changed=None, **still)
    return replace(row, **facts)


def leaks(name: str, change: float) -> AuditRow:
    reason = f"frozen by freeze('conv1'), yet it moved {change} by weight decay 0.01"
    return trained(name, requires_grad=False, max_change=change, verdict="leaks", reason=reason)


def statistic(name: str) -> AuditRow:
    reason = "running statistic, it moved 0.3 by the forward pass"
    return held(name, "statistic", max_change=0.3, verdict="trained", reason=reason, gradient=None)


def healthy() -> Audit:
    rows = [held("conv1.weight"), held("conv1.bias"), trained("conv2.weight"), trained("fc.bias")]
    return Audit(tuple(rows), (), 3)


def transformer(layers: int = 12, frozen: int = 6) -> Audit:
    """Half of the layers frozen, a head that no gradient reaches."""
    parts = [f"attn.{p}.weight" for p in ("q", "k", "v", "out")]
    parts += ["mlp.up.weight", "mlp.down.weight", "norm.gamma"]
    rows = [
        held(f"layers.{n}.{part}", "freeze('layers')", gradient=0.01 * (n + 1))
        if n < frozen
        else trained(f"layers.{n}.{part}", gradient=0.01 * (n + 1), max_change=0.001 * n)
        for n in range(layers)
        for part in parts
    ]
    cut = trained(
        "head.weight", gradient=None, max_change=0.0, bits_changed=0, verdict="unreached",
        reason=DEAF,
    )  # fmt: skip
    return Audit((*rows, cut), (), 3)


def findings() -> tuple[Finding, Finding]:
    return (
        Finding("order", "gradients come in another order than the optimizer's", ("fc.bias",)),
        Finding("dropout", "dropout is active in drop", ("drop",), problem=False),
    )
