"""Every test runs in an empty folder, with fixed seeds, in GRAPH_MODE unless it asks for `mode`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import pytest

MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}


@pytest.fixture(autouse=True)
def _clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(0)
    yield
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest, _clean_surroundings: None) -> str:
    """Run the test in both modes; `pytestmark = pytest.mark.usefixtures("mode")` does so for a module."""
    ms.set_context(mode=MODES[request.param])
    return request.param
