"""The command starts, and without MindSpore where none is needed, or says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import msgrad as mg

ROOT = Path(__file__).resolve().parents[2]
REMEDY = "pip install 'mindspore>=2.7' 'numpy>=1.26,<2'"

# what stands in for MindSpore, and what the line says of it
BROKEN = [
    pytest.param("raise ImportError('libmindspore_core.so: cannot open\\nmore')",
                 "ImportError: libmindspore_core.so: cannot open", id="a-library-is-missing"),
    pytest.param("raise SystemError('numpy init failed')", "SystemError: numpy init failed",
                 id="another-numpy"),
    pytest.param("__version__ = '1.9'", "ImportError: cannot import name", id="an-old-one"),
]  # fmt: skip


ENTRY = ("-c", "import sys; from msgrad.cli import main; sys.exit(main())")
MODULE = ("-m", "msgrad")


def run(
    folder: Path, *arguments: str, python: str = "-B", program: tuple[str, str] = ENTRY
) -> subprocess.CompletedProcess[str]:
    """Run the entry of the command, with a folder of stand-ins before everything else."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, python, *program, *arguments],
        env=environment, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("stand_in", "found"), BROKEN)
def test_a_mindspore_that_cannot_be_imported_is_told_in_one_line(
    tmp_path: Path, stand_in: str, found: str
):
    (tmp_path / "mindspore.py").write_text(stand_in, encoding="utf-8")
    done = run(tmp_path, "doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"msgrad cannot start: {found}")
    assert done.stderr.endswith(f"; {REMEDY}, or run msgrad --debug doctor\n")
    assert done.stderr.count("\n") == 1


# no folder of installed packages at all
BARE = "-S"
MISSING = "mindspore and numpy not installed"


def test_without_mindspore_the_doctor_says_what_installs_it(tmp_path: Path):
    done = run(tmp_path, "doctor", python=BARE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"msgrad cannot start: {MISSING}; {REMEDY}\n"


def test_without_mindspore_the_doctor_finds_that_for_machines_too(tmp_path: Path):
    done = run(tmp_path, "doctor", "--json", python=BARE)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == [
        {"name": "MindSpore", "ok": False, "found": MISSING, "remedy": REMEDY}
    ]


def test_without_mindspore_another_command_is_an_error_and_debug_shows_where(tmp_path: Path):
    done = run(tmp_path, "--debug", "diff", "a.ckpt", "b.ckpt", python=BARE)
    assert done.returncode == 3
    assert "ModuleNotFoundError: No module named 'mindspore'" in done.stderr
    assert done.stderr.endswith(f"msgrad cannot start: {MISSING}; {REMEDY}\n")


def test_with_mindspore_it_is_the_command_line(tmp_path: Path):
    done = run(tmp_path, "diff", "nowhere.ckpt", "b.ckpt")
    assert done.returncode == 2
    assert done.stderr.startswith("msgrad: path 'nowhere.ckpt' is no file")


# what needs no MindSpore: exit code, and a part of what is printed
LIGHT = [
    pytest.param(["--help"], 0, "doctor", id="help"),
    pytest.param(["train", "--help"], 0, "example:\n  msgrad train", id="help-of-a-command"),
    pytest.param(["--version"], 0, f"msgrad {mg.__version__}\n", id="version"),
    pytest.param(["plan", "a.yaml", "--sett"], 2, "unrecognized arguments: --sett", id="flag"),
    pytest.param([], 2, "required: COMMAND", id="no-command"),
]
PROGRAMS = [pytest.param(ENTRY, id="msgrad"), pytest.param(MODULE, id="python-m-msgrad")]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("arguments", "code", "said"), LIGHT)
def test_where_no_mindspore_is_needed_none_is_imported(
    tmp_path: Path, arguments: list[str], code: int, said: str, program: tuple[str, str]
):
    for package in ("mindspore", "numpy"):
        text = f"raise SystemError('{package} is imported')"
        (tmp_path / f"{package}.py").write_text(text, encoding="utf-8")
    done = run(tmp_path, *arguments, program=program)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "is imported" not in done.stdout + done.stderr


AT_FIRST = """
import sys
import msgrad
from msgrad import cli
assert "mindspore" not in sys.modules
assert {"freeze", "errors", "runs", "rules"} <= set(dir(msgrad))
assert issubclass(msgrad.NoMatchError, msgrad.errors.MsgradError)
assert not hasattr(msgrad, "freez")
assert {"mindspore", "numpy"} & set(sys.modules) == set()
assert msgrad.rules.add_noise.__doc__ and msgrad.runs.build
assert "mindspore" in sys.modules
"""


def test_the_package_imports_mindspore_with_the_first_name_that_needs_it(tmp_path: Path):
    done = run(tmp_path, program=("-c", AT_FIRST))
    assert (done.returncode, done.stderr) == (0, "")
