"""The audit: real steps are run, everything is restored, and each parameter gets a verdict."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from msgrad._errors import AuditError
from msgrad._rows import VERDICTS, AuditRow, Finding

_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Audit:
    """What happened to each parameter in some real steps, and why; printed, it is a table.

    Attributes:
        rows: One per parameter and buffer of the network, in network order.
        findings: About the whole: faults, and what is worth knowing.
        steps: The number of steps that were run.

    Examples:
        >>> Audit(rows=(), findings=(), steps=3).ok
        True
    """

    rows: tuple[AuditRow, ...]
    findings: tuple[Finding, ...]
    steps: int

    @property
    def problems(self) -> list[str]:
        """One line for each fault: findings about the whole, then parameters, the worst first."""
        bad = sorted((row for row in self.rows if not row.ok), key=_severity)
        lines = [finding.message for finding in self.findings if finding.problem]
        return lines + [f"{row.name}: {row.verdict}: {row.reason}" for row in bad]

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, in the order of severity, verdicts without rows too."""
        count = Counter(row.verdict for row in self.rows)
        return {verdict: count[verdict] for verdict in VERDICTS}

    def check(self) -> None:
        """Raise where there is a problem.

        Raises:
            AuditError: The first problems, and how many more there are.
        """
        problems = self.problems
        if problems:
            more = len(problems) - _SHOWN
            shown = problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
            raise AuditError("\n".join([f"audit found {len(problems)} problems", *shown]))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all of it as JSON, and write it to a file where a path is given.

        JSON has no NaN and no infinity: they become the strings "nan" and "inf".

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.
        """
        content = {
            "ok": self.ok,
            "steps": self.steps,
            "counts": self.counts,
            "problems": self.problems,
            "findings": [asdict(finding) for finding in self.findings],
            "rows": [{k: _plain(v) for k, v in asdict(row).items()} for row in self.rows],
        }
        text = json.dumps(content, indent=2, allow_nan=False)
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def to_html(self, path: str | Path) -> None:
        """Write one self-contained HTML page, with the plot in it.

        Args:
            path: File to write.
        """
        # Here, so that an audit costs no import of what draws it.
        from msgrad._page import write_page

        write_page(self, path)

    def plot(self, path: str | Path) -> None:
        """Draw gradient and change per layer, held layers marked, as PNG or SVG.

        Args:
            path: File to write; its ending says which.
        """
        from msgrad._plot import plot_audit

        plot_audit(self, path)

    def __str__(self) -> str:
        from msgrad._table import audit_table

        return audit_table(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts.items() if n)
        return f"Audit({counts or 'no parameters'}; {len(self.problems)} problems)"


def _severity(row: AuditRow) -> int:
    return VERDICTS.index(row.verdict)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
