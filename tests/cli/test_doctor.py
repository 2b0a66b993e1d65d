"""The doctor: each thing that can be wrong is found, named and given a remedy."""

from __future__ import annotations

import json
import sys
from importlib import metadata

import mindspore as ms
import numpy as np
import pytest

import msgrad as mg
from msgrad.cli import _doctor, _main

NAMES = ["Python", "MindSpore", "NumPy", "protobuf", "device", "compiled step"]
TOOLS = ["PyYAML", "rich", "matplotlib"]


@pytest.fixture
def _no_step(monkeypatch):
    """Leave the step out, which takes longer than all else."""
    monkeypatch.setattr(_doctor, "_step", lambda: _doctor.Check("compiled step", True, ""))


def found():
    return {check.name: check for check in _doctor.checks()}


def test_a_healthy_machine_passes_every_check_with_what_was_found():
    checks = found()
    assert list(checks) == [*NAMES, *TOOLS]
    assert [name for name, check in checks.items() if not check.ok] == []
    assert checks["MindSpore"].found == ms.__version__
    assert checks["NumPy"].found == np.__version__
    assert checks["compiled step"].found == "moved 1.weight, 1.bias; frozen: 0.weight, 0.bias"


def python_313(patch):
    patch.setattr(sys, "version_info", (3, 13, 1))


def mindspore_26(patch):
    patch.setattr(ms, "__version__", "2.6.0")


def mindspore_211(patch):
    patch.setattr(ms, "__version__", "2.11.0rc1")


def numpy_2(patch):
    patch.setattr(np, "__version__", "2.1.0")


def protobuf_old(patch):
    patch.setattr(metadata, "version", lambda _: "3.1.0")
    patch.setattr(metadata, "requires", lambda _: ["numpy>=1.20", "protobuf>=3.13.0"])


def protobuf_broken(patch):
    def broken():
        raise TypeError("Descriptors cannot be created directly.\nmore lines")

    patch.setattr(_doctor.anf_ir_pb2, "ModelProto", broken)


def device_taken(patch):
    def broken(_):
        raise mg.DeviceError("target 'Ascend' cannot be set any more")

    patch.setattr(_doctor, "use_device", broken)


def step_broken(patch):
    def broken(*_):
        raise SystemError("<built-in> returned a result with an exception set")

    patch.setattr(_doctor, "TrainStep", broken)


def step_leaks(patch):
    patch.setattr(_doctor, "freeze", lambda *_: None)


SICK = [
    pytest.param(python_313, "Python", "3.13.1, not 3.10 or later and below 3.13", "install Python",
                 id="python"),
    pytest.param(mindspore_26, "MindSpore", "2.6.0, not 2.7 or later",
                 "pip install 'mindspore>=2.7'", id="mindspore-too-old"),
    pytest.param(numpy_2, "NumPy", "2.1.0, not 1.26 or later and below 2.0",
                 "pip install 'numpy>=1.26,<2'", id="numpy-2"),
    pytest.param(protobuf_old, "protobuf", "3.1.0, and MindSpore 2.", "pip install 'protobuf>=3.13",
                 id="protobuf-too-old"),
    pytest.param(protobuf_broken, "protobuf", "TypeError: Descriptors cannot be created directly.",
                 "pip install --upgrade protobuf", id="protobuf-broken"),
    pytest.param(device_taken, "device", "DeviceError: target 'Ascend' cannot be set any more",
                 "mindspore.run_check()", id="device"),
]  # fmt: skip


def assert_only_this_fails(name, text, remedy):
    checks = found()
    assert [n for n, check in checks.items() if not check.ok] == [name]
    assert checks[name].found.startswith(text)
    assert remedy in checks[name].remedy
    assert "\n" not in checks[name].found


@pytest.mark.usefixtures("_no_step")
@pytest.mark.parametrize(("make_sick", "name", "text", "remedy"), SICK)
def test_what_is_wrong_fails_its_own_check_and_gets_a_remedy(
    make_sick, name, text, remedy, monkeypatch
):
    make_sick(monkeypatch)
    assert_only_this_fails(name, text, remedy)


SICK_STEPS = [
    pytest.param(step_broken, "SystemError: <built-in> returned a result",
                 "mindspore.run_check()", id="a-step-that-raises"),
    pytest.param(step_leaks, "moved 0.weight, 0.bias, 1.weight, 1.bias; frozen",
                 "report this", id="a-step-that-moves-what-is-frozen"),
]  # fmt: skip


@pytest.mark.parametrize(("make_sick", "text", "remedy"), SICK_STEPS)
def test_a_step_that_goes_wrong_fails_the_check_of_the_step(make_sick, text, remedy, monkeypatch):
    make_sick(monkeypatch)
    assert_only_this_fails("compiled step", text, remedy)


@pytest.mark.usefixtures("_no_step")
def test_a_newer_mindspore_is_no_failure_and_is_told_from_those_that_were_tested(monkeypatch):
    mindspore_211(monkeypatch)
    check = found()["MindSpore"]
    assert (check.ok, check.found) == (True, "2.11.0rc1, tested were 2.7.0 to 2.10.x")
    assert "pip install 'mindspore<2.11'" in check.remedy


@pytest.mark.usefixtures("_no_step")
def test_a_missing_tool_is_no_failure_and_says_what_installs_it(monkeypatch):
    version = metadata.version

    def without_rich(package):
        if package == "rich":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", without_rich)
    assert found()["rich"] == _doctor.Check(
        "rich", True, "not installed, and not needed", "pip install 'msgrad[tools]'"
    )


@pytest.mark.usefixtures("_no_step")
def test_an_ascend_that_is_missing_is_told_with_what_it_needs(monkeypatch):
    monkeypatch.setattr(_doctor, "why_not_ascend", lambda: ("no plugin", "install CANN"))
    check = found()["device"]
    assert (check.ok, check.found) == (True, "CPU: no plugin")
    assert check.remedy == "for an Ascend install CANN"


def test_the_command_prints_a_line_for_each_check_and_ends_with_0(capsys):
    assert _main.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["ok"] * 9


@pytest.mark.usefixtures("_no_step")
def test_the_command_ends_with_1_where_a_check_failed_and_json_says_which(capsys, monkeypatch):
    numpy_2(monkeypatch)
    assert _main.main(["doctor", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in content if not check["ok"]] == ["NumPy"]
