"""Functions that a plan names: ready ones, those of a file, those of a package."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor

import msgrad as mg
from msgrad.plans._user_code import Functions, module_of

SOURCE = """\
from __future__ import annotations
from dataclasses import dataclass
from mindspore import nn

@dataclass
class Setting:
    by: float = 3.0

def triple(w):
    return w * 3.0

def times(by):
    def rule(w):
        return w * by
    return rule

class Add(nn.Cell):
    def __init__(self, what=1.0):
        super().__init__()
        self.what = what

    def construct(self, w):
        return w + self.what

limit = 5
"""
FOUND = [
    pytest.param("mine.py:triple", None, 6.0, id="a function"),
    pytest.param("mine.py:times", [4.0], 8.0, id="a function that makes one"),
    pytest.param("mine.py:times", {"by": 5.0}, 10.0, id="by name"),
    pytest.param("mine.py:Add", None, 3.0, id="a Cell class"),
    pytest.param("mine.py:Add", [2.5], 4.5, id="a Cell class with arguments"),
    pytest.param("mindspore.ops:neg", None, -2.0, id="a package"),
    pytest.param("multiply", [0.5], 1.0, id="a ready rule"),
    pytest.param(lambda w: w * 7.0, None, 14.0, id="a callable"),
]
MISSING = [
    pytest.param(
        "mine.py:tripel", None, "has no function 'tripel'; did you mean 'triple'?", id="f"
    ),
    pytest.param("mine.py:limit", None, "is 5, no function; give a function of a weight", id="5"),
    pytest.param("no.py:f", None, "file 'no.py' is not in '.'; give a path from there", id="file"),
    pytest.param("bad.py:f", None, "file 'bad.py' fails: NameError", id="a file that fails"),
    pytest.param("no.such:f", None, "module 'no.such' fails: No module named 'no'", id="module"),
    pytest.param("mine.py:times", [1, 2], "too many positional arguments; it takes (by)", id="two"),
    pytest.param("multiply", [float("nan")], "factor nan is not finite", id="a value"),
]


@pytest.fixture(autouse=True)
def _files():
    Path("mine.py").write_text(SOURCE, encoding="utf-8")
    Path("bad.py").write_text("undefined", encoding="utf-8")


@pytest.mark.parametrize(("name", "arguments", "result"), FOUND)
def test_a_name_gives_the_function(name, arguments, result):
    functions = Functions(Path())
    function = functions.of(name, arguments)
    assert np.isclose(float(function(Tensor(2.0))), result)
    assert functions.of(name, arguments) is function


@pytest.mark.parametrize(("name", "arguments", "message"), MISSING)
def test_what_is_not_there_or_does_not_fit_is_refused(name, arguments, message):
    with pytest.raises(mg.ArgumentError, match=re.escape(message)):
        Functions(Path()).of(name, arguments)


def test_a_file_is_found_from_its_folder_and_run_once(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text("def f(w):\n    return w\n", encoding="utf-8")
    module = module_of("mine.py", tmp_path / "sub")
    assert module_of("../sub/mine.py", tmp_path / "sub") is module
    assert module is not module_of("mine.py", tmp_path)
