"""An audit as a table on a terminal: at most 100 columns, problems first, equal layers folded."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Hashable, Iterable, Sequence

from msgrad._text import count, cut, few, plain_table
from msgrad.auditing._rows import GOOD, VERDICTS, Audited, AuditRow, counted, problems_of
from msgrad.network import fold, fold_cells

_COLUMNS = 100
# As many lines as a screen or two can show.
_MOST_PROBLEMS = 20
_MOST_LINES = 60
_MOST_PATTERNS = 6
_HEAD = ("parameter", "n", "verdict", "rate", "decay", "gradient", "change")


def audit_table(audit: Audited) -> str:
    """Write an audit as text: a summary, the problems, a table, what is held, what is to be known.

    Parameters that were treated alike share a line, their names folded as `select` reads them:
    ``layers.{0..11}.attn.weight``; figures that differ are given as the smallest and the largest.
    Where the lines are still too many, cells treated alike as a whole share one, and at last all
    that was treated alike.
    """
    parts = [_summary(audit), _problems(audit), _table(audit.rows), _held(audit), _notes(audit)]
    return "\n\n".join(part for part in parts if part)


def _summary(audit: Audited) -> str:
    faults = len(problems_of(audit.rows, audit.findings))
    end = count(faults, "problem") if faults else "no problem"
    what = f"audit of {count(audit.steps, 'step')}, {count(len(audit.rows), 'parameter')}"
    return _wrapped(f"{what}: {counted(audit.rows)}; {end}", "")


def _problems(audit: Audited) -> str:
    found = [
        _wrapped(head, "  ") + (f"\n{_wrapped(why, '    ', '    ')}" if why else "")
        for head, why in problem_groups(audit)
    ]
    return "\n".join(cut(found, _MOST_PROBLEMS, "… and {} more problems of other kinds"))


def problem_groups(audit: Audited) -> list[tuple[str, str]]:
    """Return the problems, those of one kind together: what and where, and why.

    Findings come first, then parameters, the worst verdicts before the others.
    """
    groups: dict[tuple[int, str], list[AuditRow]] = {}
    for row in audit.rows:
        if row.verdict not in GOOD:
            key = (VERDICTS.index(row.verdict), without_numbers(row.reason))
            groups.setdefault(key, []).append(row)
    worst_first = [rows for _, rows in sorted(groups.items(), key=lambda item: item[0][0])]
    found = [(f"{f.kind}: {f.message}", "") for f in audit.findings if f.problem]
    return found + [_problem(rows) for rows in worst_first]


def _problem(rows: Sequence[AuditRow]) -> tuple[str, str]:
    worst = max(rows, key=lambda row: row.max_change)
    alike = f" ({len(rows)} parameters)" if len(rows) > 1 else ""
    head = f"{worst.verdict}: {few(list(fold(row.name for row in rows)), _MOST_PATTERNS)}{alike}"
    one = len({row.reason for row in rows}) == 1
    return head, worst.reason if one else f"most at {worst.name}: {worst.reason}"


def _held(audit: Audited) -> str:
    kinds = {row.name: (row.verdict, row.reason) for row in audit.rows}
    reasons: dict[str, list[str]] = {}
    for pattern, names in fold_cells(kinds).items():
        verdict, reason = kinds[names[0]]
        if verdict == "held":
            reasons.setdefault(reason, []).append(pattern)
    lines = [
        _wrapped(f"held: {few(where, _MOST_PATTERNS)}: {why}", "  ")
        for why, where in reasons.items()
    ]
    return "\n".join(cut(lines, _MOST_PROBLEMS, "… and {} more reasons"))


def _notes(audit: Audited) -> str:
    notes = [f"note: {f.kind}: {f.message}" for f in audit.findings if not f.problem]
    return "\n".join(_wrapped(note, "  ") for note in notes)


# --- the table


def _table(rows: Sequence[AuditRow]) -> str:
    if not rows:
        return ""
    by_name = {row.name: row for row in rows}
    lines = [
        _line(label, [by_name[name] for name in names]) for label, names in _groups(rows).items()
    ]
    table = plain_table(_HEAD, lines[:_MOST_LINES], right=[1], most=_COLUMNS)
    more = sum(int(line[1]) for line in lines[_MOST_LINES:])
    rest = f"\n… and {more} more parameters; to_json and to_html have them all"
    return table + rest * bool(more)


def _groups(rows: Sequence[AuditRow]) -> dict[str, list[str]]:
    """Group the names of rows alike, more of them in one line where there are too many lines."""
    kinds = {row.name: _kind(row) for row in rows}
    alike: dict[Hashable, list[str]] = {}
    for name, kind in kinds.items():
        alike.setdefault(kind, []).append(name)
    folded = {p: n for names in alike.values() for p, n in fold(names).items()}
    if len(folded) > _MOST_LINES:
        folded = fold_cells(kinds)
    if len(folded) > _MOST_LINES:
        folded = {few(names, 1): names for names in alike.values()}
    order = {row.name: position for position, row in enumerate(rows)}
    return dict(sorted(folded.items(), key=lambda item: order[item[1][0]]))


def _kind(row: AuditRow) -> Hashable:
    return row.verdict, row.rule, row.lr, row.weight_decay, without_numbers(row.reason)


def _line(pattern: str, rows: Sequence[AuditRow]) -> tuple[str, ...]:
    first = rows[0]
    change = _figures([row.max_change for row in rows])
    return (
        pattern,
        str(len(rows)),
        first.verdict,
        _figures([first.lr]),
        _figures([first.weight_decay]),
        _figures([row.gradient for row in rows]),
        # bits that differ without a distance are the signs of zeros
        "±0" if first.bits_changed and not any(r.max_change for r in rows) else change,
    )


def _figures(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    broken = [value for value in known if not math.isfinite(value)]
    if broken:
        return f"{broken[0]}"
    low, high = f"{min(known):.2g}", f"{max(known):.2g}"
    return low if low == high else f"{low}–{high}"


# --- text


def without_numbers(reason: str) -> str:
    """Return a reason without its numbers, by which those of one kind are alike."""
    return re.sub(r"[0-9][0-9.]*(?:e[+-]?[0-9]+)?", "#", reason)


def _wrapped(text: str, indent: str, first: str = "") -> str:
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
