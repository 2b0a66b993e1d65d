"""What the tests share beyond the clean surroundings of the conftest.py at the root."""

from __future__ import annotations

import mindspore as ms
import pytest

MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest, _clean_surroundings: None) -> str:
    """Run in both modes; `pytestmark = pytest.mark.usefixtures("mode")` does so for a module."""
    ms.set_context(mode=MODES[request.param])
    return request.param
