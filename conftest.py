"""Every test and doctest runs in an empty folder, with a fixed seed, in GRAPH_MODE."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import pytest

# not a conftest.py of its own: for the examples in docstrings, pytest imports these under one name
pytest_plugins = ["ascend_plugin"]


def pytest_collection_finish() -> None:
    """Let garbage collections pass over what stands now: MindSpore asks for one at each compile.

    Each took 65 ms, a third of the time of a small graph.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(0)
    yield
    ms.set_context(mode=ms.GRAPH_MODE)
