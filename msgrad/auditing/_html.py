"""An audit as one HTML page that needs no other file: problems, picture, and every row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from io import StringIO
from pathlib import Path

from msgrad._extras import draw_figure
from msgrad._files import write_text
from msgrad.auditing._plot import draw_audit
from msgrad.auditing._rows import Audited, AuditRow, counted, problems_of
from msgrad.auditing._table import problem_groups

_TEXTS = ("parameter", "shape", "type", "verdict", "why", "rule", "flag", "optimizer")
_FIGURES = ("rate", "decay", "gradient", "largest change", "L2", "bits changed")
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1500px; padding: 0 1.5em;
       color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 1.8em; }
.ok { color: #005a8c; } .wrong { color: #a84800; font-weight: bold; }
ul { padding-left: 1.3em; } li { margin: .25em 0; overflow-wrap: anywhere; }
.plot svg { max-width: 100%; height: auto; }
.rows { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid #ddd; padding: .25em .6em; text-align: left;
         vertical-align: top; }
th { background: #f4f4f4; white-space: nowrap; }
td { white-space: nowrap; } td.why { white-space: normal; min-width: 20em; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.held td { background: #ececec; } tr.wrong td { background: #fdeee4; }
input { font: inherit; padding: .3em .5em; width: 22em; max-width: 100%; }
"""
# Shows the rows that hold what is typed; the page is whole without it.
_SCRIPT = """
document.getElementById("filter").addEventListener("input", function () {
  const word = this.value.toLowerCase();
  for (const row of document.querySelectorAll("tbody tr"))
    row.hidden = !row.textContent.toLowerCase().includes(word);
});
"""


def write_page(audit: Audited, path: str | Path) -> None:
    """Write an audit as one HTML file, with the plot in it.

    Args:
        audit: What was found.
        path: File to write; its folder is made.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    write_text(path, _page(audit))


def _page(audit: Audited) -> str:
    title = f"audit: {counted(audit.rows)}"
    problems = [f"{head}: {why}" if why else head for head, why in problem_groups(audit)]
    state = _list(problems) if problems else '<p class="ok">No problem was found.</p>'
    notes = [f"{f.kind}: {f.message}" for f in audit.findings if not f.problem]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>What happened to {len(audit.rows)} parameters and buffers in {audit.steps} "
            "training steps, all of which were taken back.</p>",
            f"<h2>Problems: {len(problems_of(audit.rows, audit.findings))}</h2>",
            state,
            *(["<h2>Worth knowing</h2>", _list(notes)] if notes else []),
            "<h2>Layers</h2>",
            f'<div class="plot">{_picture(audit)}</div>',
            "<h2>Parameters</h2>",
            '<p><input id="filter" placeholder="show rows that contain …"></p>',
            f'<div class="rows">{_table(audit.rows)}</div>',
            f"<script>{_SCRIPT}</script></body></html>",
            "",
        ]
    )


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _picture(audit: Audited) -> str:
    file = StringIO()
    draw_figure(draw_audit(audit), file, "svg")
    text = file.getvalue()
    # what stands before is for a file of its own
    return text[text.index("<svg") :]


def _table(rows: Iterable[AuditRow]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _TEXTS)
    head += "".join(f'<th class="number">{name}</th>' for name in _FIGURES)
    head += "<th>state changed</th>"
    body = "\n".join(_row(row) for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _row(row: AuditRow) -> str:
    kind = "wrong" if not row.ok else row.verdict
    texts = [
        row.name, str(row.shape), row.dtype, row.verdict, row.reason, row.rule,
        str(row.requires_grad), "yes" if row.in_optimizer else "no",
    ]  # fmt: skip
    figures = [
        _figure(row.lr), _figure(row.weight_decay), _figure(row.gradient), _figure(row.max_change),
        _figure(row.l2), str(row.bits_changed),
    ]  # fmt: skip
    changed = {None: "–", True: "yes", False: "no"}[row.state_changed]
    cells = [f'<td class="{name}">{escape(t)}</td>' for name, t in zip(_TEXTS, texts, strict=True)]
    cells += [f'<td class="number">{figure}</td>' for figure in figures]
    return f'<tr class="{kind}">{"".join(cells)}<td>{changed}</td></tr>'


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if math.isfinite(value) else str(value)
