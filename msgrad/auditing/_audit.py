"""The audit: real steps are run, everything is restored, and each parameter gets a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import mindspore as ms
from mindspore import nn

from msgrad._files import as_json
from msgrad._text import cut
from msgrad.auditing._collect import Collector
from msgrad.auditing._observations import gather, watched_in
from msgrad.auditing._rows import AuditRow, Finding, counted, counts_of, problems_of
from msgrad.auditing._step_checks import findings_of
from msgrad.auditing._subject import subject_of
from msgrad.errors import ArgumentError, AuditError
from msgrad.network import Pattern, refuse_lent, seeds_kept, select

_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Audit:
    """What happened to each parameter in some real steps, and why; printed, it is a table.

    Attributes:
        rows: One per parameter and buffer of the network, in network order.
        findings: About the whole: faults, and what is worth knowing.
        steps: The number of steps that were run.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
        >>> audit = mg.audit(step, ms.ops.ones((2, 4)), ms.ops.zeros((2, 2)))
        >>> audit.ok, [row.verdict for row in audit.rows]
        (True, ['held', 'held', 'trained', 'trained'])
    """

    rows: tuple[AuditRow, ...]
    findings: tuple[Finding, ...]
    steps: int

    @property
    def problems(self) -> list[str]:
        """One line for each fault: findings about the whole, then parameters, the worst first."""
        return problems_of(self.rows, self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, in the order of severity, verdicts without rows too."""
        return counts_of(self.rows)

    def check(self) -> None:
        """Raise where there is a problem.

        Raises:
            AuditError: The first problems, and how many more there are.

        Examples:
            >>> from msgrad.auditing import Audit
            >>> Audit(rows=(), findings=(), steps=3).check()
        """
        problems = self.problems
        if problems:
            shown = cut(problems, _SHOWN)
            raise AuditError("\n".join([f"audit found {len(problems)} problems", *shown]))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all of it as JSON, and write it to a file where a path is given.

        JSON has no NaN and no infinity: they become the strings "nan" and "inf".

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.

        Examples:
            >>> from msgrad.auditing import Audit
            >>> Audit(rows=(), findings=(), steps=3).to_json().splitlines()[1]
            '  "ok": true,'
        """
        content = {
            "ok": self.ok,
            "steps": self.steps,
            "counts": self.counts,
            "problems": self.problems,
            "findings": [asdict(finding) for finding in self.findings],
            "rows": list(map(asdict, self.rows)),
        }
        return as_json(content, path)

    def to_html(self, path: str | Path) -> None:
        """Write one self-contained HTML page, with the plot in it.

        Args:
            path: File to write.
        """
        # Here, so that an audit costs no import of what draws it.
        from msgrad.auditing._html import write_page

        write_page(self, path)

    def plot(self, path: str | Path) -> None:
        """Draw gradient and change per layer, held layers marked, as PNG or SVG.

        Args:
            path: File to write; its ending says which.
        """
        from msgrad.auditing._plot import plot_audit

        plot_audit(self, path)

    def __str__(self) -> str:
        from msgrad.auditing._table import audit_table

        return audit_table(self)

    def __repr__(self) -> str:
        return f"Audit({counted(self.rows)}; {len(self.problems)} problems)"


def audit(
    step: nn.Cell | ms.Model | Callable[..., object],
    *inputs: object,
    steps: int = 3,
    net: nn.Cell | None = None,
    optimizer: nn.Cell | Sequence[nn.Cell] | None = None,
    held: Pattern | None = None,
) -> Audit:
    """Run real steps, restore everything to the byte, and say of each parameter what happened.

    It is told by what moved, not by flags: weights, optimizer state, counters, statistics and seeds
    are copied before and written back after. The hidden stream of an active ``nn.Dropout`` cannot
    be restored; the audit names it. Objects of yours that hold parameters, tensors or cells get
    their attributes back too, such as sums of gradients and their number. What the step prints it
    prints, and what else it changes in Python (a list of numbers, a file) stays changed.

    The gradient is that of the loss at the weights as they are, on the first batch: for a
    `TrainStep`, a train cell with a ``network``, and a function around ``value_and_grad``, from one
    more compiled graph, which also shows where a gradient can get to; for any other train cell as
    it comes to the optimizer, with random trials where it is zero.

    Args:
        step: A `TrainStep`, any train cell, a ``Model``, or the function that does a step. In the
            mode (``set_train``) to be looked at; a Model is put in training for the time.
        *inputs: One batch, as the step is called with; for a Model a dataset, of which the first
            batches are taken.
        steps: Number of steps. More than 3 where gradients are summed over several steps.
        net: The Cell that holds the parameters, where ``step`` is a function.
        optimizer: The optimizer that the function calls, or a list of them.
        held: Patterns of parameters that this step is to leave alone although nothing says so to
            MindSpore, such as the discriminator in the generator's step.

    Returns:
        The audit; printed, it is a table.

    Raises:
        ArgumentTypeError: ``step`` is nothing that trains, or net and optimizer are missing.
        ArgumentError: No inputs, no optimizer, or ``steps`` is not positive.
        NoMatchError: A pattern of ``held`` selects nothing.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.1, weight_decay=0.1)
        >>> step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        >>> net[0].weight.requires_grad = False
        >>> mg.audit(step, ms.ops.ones((2, 4)), ms.ops.zeros((2, 2))).rows[0].verdict
        'leaks'
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError(f"steps {steps!r} is no number of steps; give 1 or more")
    with seeds_kept():
        subject = subject_of(step, inputs, steps, net, optimizer)
        refuse_lent(subject.network.get_parameters(), "an audit would take it for the weights")
        left = {id(p) for p in select(subject.network, held)} if held is not None else set()
        watched = watched_in(subject)
        observations = gather(subject, watched, steps)
    collector = Collector(subject, observations, left)
    rows = tuple(collector.row(name, value) for name, value in watched.items())
    findings = findings_of(subject, observations, collector, rows, list(watched.values()))
    return Audit(rows, findings, steps)
