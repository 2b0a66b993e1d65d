"""What an audit found, as data: a row for each parameter and buffer, findings about the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

# From the worst to what is as it should be; problems are told in this order.
VERDICTS = ("not finite", "leaks", "stale", "unreached", "dead", "zero", "still", "trained", "held")
GOOD = frozenset({"trained", "held"})
# Kinds of rows that no optimizer is asked to move: they say nothing about training.
BESIDE = frozenset({"statistic", "buffer", "integer"})


@dataclass(frozen=True)
class AuditRow:
    """What happened to one parameter or buffer, and why.

    Attributes:
        name: Its name.
        shape: Its shape.
        dtype: Its type, such as "float32".
        rule: What decides whether it may move: a freeze with its patterns, "hold", "trainable=",
            "unreached", "requires_grad", "statistic", "buffer", or "" where nothing speaks against
            it.
        requires_grad: The flag; False for a buffer.
        in_optimizer: Whether the optimizer holds this very parameter.
        lr: Learning rate of its group at the first step; None where no optimizer holds it.
        weight_decay: Weight decay of its group, likewise.
        gradient: Euclidean norm of its gradient on the batch, at the weights as they were; 0.0
            where there is a path and the gradient is zero, NaN or infinite where an element is,
            None where there is no path or it was not asked for.
        max_change: Largest absolute change of an element over the steps.
        l2: Euclidean norm of the change.
        bits_changed: Number of elements whose bits differ.
        state_changed: Whether optimizer state of this parameter moved; None where it has none.
        verdict: One of `VERDICTS`.
        reason: Why, in one sentence.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
        >>> row = mg.audit(step, ms.ops.ones((2, 4)), ms.ops.zeros((2, 2))).rows[0]
        >>> row.name, row.verdict, row.bits_changed, row.rule
        ('0.weight', 'held', 0, "freeze('0')")
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rule: str
    requires_grad: bool
    in_optimizer: bool
    lr: float | None
    weight_decay: float | None
    gradient: float | None
    max_change: float
    l2: float
    bits_changed: int
    state_changed: bool | None
    verdict: str
    reason: str

    @property
    def ok(self) -> bool:
        """Whether it did what it is meant to do."""
        return self.verdict in GOOD


@dataclass(frozen=True)
class Finding:
    """Something about the whole network or step.

    Attributes:
        kind: A short name, such as "nothing moved".
        message: One sentence.
        names: The parameters or cells that it is about.
        problem: Whether it is a fault; otherwise it is worth knowing, and no more.

    Examples:
        >>> Finding("nothing moved", "no weight moved in 3 steps; raise the rate").problem
        True
    """

    kind: str
    message: str
    names: tuple[str, ...] = ()
    problem: bool = True


def problems_of(rows: Iterable[AuditRow], findings: Iterable[Finding]) -> list[str]:
    """Return a line for each fault: findings about the whole, then parameters, worst first."""
    bad = sorted((row for row in rows if not row.ok), key=lambda row: VERDICTS.index(row.verdict))
    lines = [finding.message for finding in findings if finding.problem]
    return lines + [f"{row.name}: {row.verdict}: {row.reason}" for row in bad]


def counts_of(rows: Iterable[AuditRow]) -> dict[str, int]:
    """Count the rows of each verdict, in the order of `VERDICTS`, verdicts without rows too."""
    count = Counter(row.verdict for row in rows)
    return {verdict: count[verdict] for verdict in VERDICTS}


def counted(rows: Iterable[AuditRow]) -> str:
    """Write how many rows have each verdict that there is."""
    there = [f"{n} {verdict}" for verdict, n in counts_of(rows).items() if n]
    return ", ".join(there) or "no parameters"


class Audited(Protocol):
    """What reports read of an audit, which is made in a file above them."""

    @property
    def rows(self) -> tuple[AuditRow, ...]: ...  # the fields of `Audit`
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def steps(self) -> int: ...
