"""The wheel holds the whole package: installed alone, away from the clone, it plans a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import msgrad as mg

ROOT = Path(__file__).resolve().parents[2]
TASK = """
from mindspore import nn
def network(config):
    return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
def loss():
    return nn.MSELoss()
def datasets(config): ...
"""


def run(folder: Path, *words: str, **environment: str) -> str:
    """Run Python in a folder and return what it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of a copy: setuptools writes into the folder that it builds from."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "msgrad", source / "msgrad", ignore=shutil.ignore_patterns("*.pyc"))
    run(source, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index")
    return next(source.glob("msgrad-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    run(target, "-m", "pip", "install", "--no-deps", "--no-index", "--target", ".", str(wheel))
    return target


def test_the_wheel_holds_every_file_of_the_package(wheel: Path):
    there = {name for name in ZipFile(wheel).namelist() if name.startswith("msgrad/")}
    files = [*(ROOT / "msgrad").rglob("*.py"), ROOT / "msgrad" / "py.typed"]
    assert there == {str(path.relative_to(ROOT)) for path in files}


def test_a_wheel_installed_alone_is_the_msgrad_that_is_imported(installed: Path, tmp_path: Path):
    code = "import msgrad; print(msgrad.__file__, msgrad.__version__)"
    printed = run(tmp_path, "-c", code, PYTHONPATH=str(installed)).split()
    assert printed == [str(installed / "msgrad" / "__init__.py"), mg.__version__]


def test_a_wheel_installed_alone_plans_a_run(installed: Path, tmp_path: Path):
    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    (tmp_path / "run.yaml").write_text("{task: task.py, plan: [{freeze: '0'}]}", encoding="utf-8")
    printed = run(tmp_path, "-m", "msgrad", "plan", "run.yaml", PYTHONPATH=str(installed))
    weights = [line.split() for line in printed.splitlines() if line.startswith(("0 ", "2 "))]
    assert [(name, count) for name, count, *_ in weights] == [("0", "2"), ("2", "2")]
    assert ["frozen" in line for line in weights] == [True, False]
