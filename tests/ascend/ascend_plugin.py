"""Dry runs for Ascend are asked for: `-m ascend_dry`. They end with a table of what compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from surroundings import RANKS, prepare

MARK = "ascend_dry"
PLACE = "ascend_dry_with"
HEADER = ("config", "step, stage", "trained", "kernels", "AllReduce", "planned peak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the dry runs out where nobody asked for them: they take minutes."""
    if MARK in config.option.markexpr:
        return
    dry = [item for item in items if item.get_closest_marker(MARK)]
    config.hook.pytest_deselected(items=dry)
    items[:] = [item for item in items if item not in dry]


@pytest.fixture(scope="session")
def ascend_place(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """What stands for the device, and the environment variables that use it."""
    return prepare(tmp_path_factory.mktemp("ascend"))


@pytest.fixture(scope="session")
def ascend(ascend_place: tuple[str, dict[str, str]]) -> dict[str, str]:
    """The environment variables that stand for the device."""
    return ascend_place[1]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what each config's steps compiled to."""
    passed = terminalreporter.stats.get("passed", [])
    rows = [tuple(row) for found in _properties(passed, MARK) for row in found]
    if not rows:
        return
    places = set(_properties(passed, PLACE))
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    terminalreporter.section(f"compiled for Ascend, as one of {RANKS} cards; nothing ran there")
    terminalreporter.write_line(f"with {' and '.join(sorted(places))}")
    for row in [HEADER, *rows]:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        terminalreporter.write_line("  ".join(cells).rstrip())
    terminalreporter.write_line(
        "A dry run shows that the graphs compile, and what they hold. Whether they run on a card, "
        "how fast, and with which results, it does not show."
    )


def _properties(reports: list[Any], wanted: str) -> Iterator[Any]:
    for report in sorted(reports, key=lambda report: report.nodeid):
        for name, value in getattr(report, "user_properties", []):
            if name == wanted and report.when == "call":
                yield value
