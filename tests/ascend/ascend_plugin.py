"""Dry runs for Ascend are asked for: `-m ascend_dry`. They end with a table of what compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from surroundings import RANKS, prepare

MARK = "ascend_dry"
HEADER = ("config", "step, stage", "trained", "kernels", "AllReduce", "planned peak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the dry runs out where nobody asked for them: they take minutes."""
    if MARK in config.option.markexpr:
        return
    dry = [item for item in items if item.get_closest_marker(MARK)]
    config.hook.pytest_deselected(items=dry)
    items[:] = [item for item in items if item not in dry]


@pytest.fixture(scope="session")
def ascend(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables that stand for the device."""
    said, variables = prepare(tmp_path_factory.mktemp("ascend"))
    print(f"dry runs with {said}")
    return variables


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what each config's steps compiled to."""
    rows = list(_rows(terminalreporter.stats.get("passed", [])))
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    terminalreporter.section(f"compiled for Ascend, as one of {RANKS} cards; nothing ran there")
    for row in [HEADER, *rows]:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        terminalreporter.write_line("  ".join(cells).rstrip())
    terminalreporter.write_line(
        "A dry run shows that the graphs compile, and what they hold. Whether they run on a card, "
        "how fast, and with which results, it does not show."
    )


def _rows(reports: list[Any]) -> Iterator[tuple[str, ...]]:
    for report in sorted(reports, key=lambda report: report.nodeid):
        for name, rows in getattr(report, "user_properties", []):
            if name == MARK and report.when == "call":
                yield from (tuple(row) for row in rows)
