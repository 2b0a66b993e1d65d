"""Another MindSpore than those tested is told by one line of the log, and used all the same."""

from __future__ import annotations

import logging

import pytest

from msgrad.backend import is_tested
from msgrad.backend._version import note_untested

VERSIONS = [
    pytest.param("2.7.0", True, id="first"),
    pytest.param("2.9.3", True, id="between"),
    pytest.param("2.10.7rc1", True, id="last"),
    pytest.param("2.6.9", False, id="older"),
    pytest.param("2.11.0", False, id="newer"),
    pytest.param("3.0", False, id="next"),
]


@pytest.mark.parametrize(("version", "tested"), VERSIONS)
def test_only_a_version_that_was_not_tested_is_logged_in_one_line(version, tested, caplog):
    with caplog.at_level(logging.INFO, "msgrad"):
        note_untested(version)
    assert is_tested(version) is tested
    said = (
        f"MindSpore {version} was not tested with msgrad, which was tested with 2.7.0 to 2.10.x; "
        "msgrad doctor tries a step"
    )
    assert caplog.messages == ([] if tested else [said])
