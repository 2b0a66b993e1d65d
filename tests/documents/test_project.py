"""The files around the library agree with it and with each other."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import msgrad as mg

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(monkeypatch):
    """What setup.py hands to setuptools."""
    given = {}
    stand_in = SimpleNamespace(
        setup=lambda **arguments: given.update(arguments), find_packages=lambda include: include
    )
    monkeypatch.setitem(sys.modules, "setuptools", stand_in)
    runpy.run_path(str(ROOT / "setup.py"))
    return given


def test_the_package_has_the_version_of_the_library(package):
    assert (package["name"], package["version"]) == ("msgrad", mg.__version__)


def test_the_changelog_begins_with_the_version_of_the_library():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, *_ = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert newest == mg.__version__


def test_numpy_2_is_not_installed_beside_mindspore(package):
    assert package["install_requires"] == ["mindspore>=2.7", "numpy>=1.26,<2"]


def test_the_extra_for_tests_holds_all_that_the_scripts_need(package):
    extras = package["extras_require"]
    assert set(extras["tools"]) | set(extras["docs"]) < set(extras["test"])


def test_the_package_says_that_it_is_typed(package):
    (marker,) = package["package_data"]["msgrad"]
    assert (ROOT / "msgrad" / marker).is_file()
