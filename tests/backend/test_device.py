"""A device is taken by asking what is there, and everything is set in MindSpore's order."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import mindspore as ms
import pytest
from mindspore import communication
from mindspore.device_context import ascend

import msgrad as mg

ROOT = str(Path(__file__).parents[2])


class Machine:
    """A machine with some Ascend devices, or with none, that records what it is told."""

    def __init__(self) -> None:
        self.plugin = True
        self.devices = 8
        self.running: tuple[str, int] | None = None
        self.told: list[tuple] = []

    def device_count(self) -> int:
        if not self.plugin:
            raise RuntimeError("Device Ascend not exist.")
        return self.devices

    def current(self) -> SimpleNamespace:
        target, number = self.running or ("Ascend", 0)
        return SimpleNamespace(device_target=target, device_id=number)

    def tell(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self.told.append((name, *args, *kwargs.items()))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in (
        "MS_ROLE", "RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH", "OMPI_COMM_WORLD_SIZE",
        "MS_SIMULATION_LEVEL", "RANK_SIZE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    machine = Machine()
    monkeypatch.setattr(ascend, "is_available", lambda: machine.plugin)
    monkeypatch.setattr(ascend, "device_count", machine.device_count)
    monkeypatch.setattr(ms, "get_current_device", machine.current)
    monkeypatch.setattr(ms.hal, "is_initialized", lambda target: machine.running is not None)
    monkeypatch.setattr(communication.GlobalComm, "INITED", False)
    monkeypatch.setattr(communication, "init", machine.tell("init"))
    for name in ("set_device", "set_context", "set_auto_parallel_context"):
        monkeypatch.setattr(ms, name, machine.tell(name))
    return machine


@pytest.mark.parametrize("target", ["auto", "Ascend"])
def test_ascend_is_taken_where_the_plugin_loads_and_a_device_is_visible(
    machine: Machine, target: str
):
    assert mg.use_device(target, device_id=7) == "Ascend"
    assert machine.told == [("set_device", "Ascend", 7), ("set_context", ("mode", ms.GRAPH_MODE))]


@pytest.mark.parametrize(
    ("plugin", "devices", "fact"),
    [
        pytest.param(False, 8, "does not load its Ascend plugin", id="no-plugin"),
        pytest.param(True, 0, "0 Ascend devices are visible", id="no-device"),
    ],
)
@pytest.mark.parametrize(
    "asked", [{"target": "auto"}, {"target": "Ascend", "fallback": True}], ids=["auto", "fallback"]
)
def test_the_cpu_is_taken_with_the_reason_in_the_log(
    machine: Machine, caplog: pytest.LogCaptureFixture, plugin: bool, devices: int, fact: str, asked
):
    machine.plugin, machine.devices = plugin, devices
    assert mg.use_device(**asked, device_id=3) == "CPU"
    assert machine.told[0] == ("set_device", "CPU", None)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("msgrad", logging.WARNING)
    assert fact in record.getMessage()


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        pytest.param(
            False, r"does not load its Ascend plugin; .* set_env\.sh, or .* fallback=True",
            id="no-plugin",
        ),
        pytest.param(True, r"0 Ascend devices are visible; look at npu-smi", id="no-device"),
    ],
)  # fmt: skip
def test_ascend_asked_for_and_missing_raises_before_anything_is_set(
    machine: Machine, plugin: bool, message: str
):
    machine.plugin, machine.devices = plugin, 0
    with pytest.raises(mg.DeviceError, match=rf"target 'Ascend' cannot be used, .*{message}"):
        mg.use_device("Ascend")
    assert machine.told == []


def test_a_dry_run_needs_the_plugin_and_no_device(machine, monkeypatch):
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "1")
    machine.devices = 0
    assert mg.use_device("Ascend", device_id=2) == "Ascend"
    machine.plugin = False
    assert mg.use_device("auto") == "CPU"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param({}, [("set_context", ("mode", ms.GRAPH_MODE))], id="graph"),
        pytest.param(
            {"mode": "pynative"}, [("set_context", ("mode", ms.PYNATIVE_MODE))], id="pynative"
        ),
        pytest.param(
            {"jit_level": "O1"},
            [
                ("set_context", ("mode", ms.GRAPH_MODE)),
                ("set_context", ("jit_config", {"jit_level": "O1"})),
            ],
            id="jit-level",
        ),
    ],
)
def test_the_mode_is_set_after_the_device(machine: Machine, given: dict, told: list):
    mg.use_device("CPU", **given)
    assert machine.told == [("set_device", "CPU", None), *told]


@pytest.mark.parametrize("distributed", [True, "auto"])
@pytest.mark.parametrize(
    "launcher", ["MS_ROLE", "RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH", "OMPI_COMM_WORLD_SIZE"]
)
def test_under_a_launcher_the_order_is_device_mode_init_data_parallel(
    machine, monkeypatch, distributed, launcher
):
    monkeypatch.setenv(launcher, "2")
    mg.use_device(distributed=distributed)
    assert machine.told == [
        ("set_device", "Ascend", None),
        ("set_context", ("mode", ms.GRAPH_MODE)),
        ("init",),
        (
            "set_auto_parallel_context",
            ("parallel_mode", ms.ParallelMode.DATA_PARALLEL),
            ("gradients_mean", True),
            ("strategy_ckpt_config", {"only_trainable_params": False}),
        ),
    ]


def test_a_communication_that_runs_is_not_started_again(machine, monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    monkeypatch.setattr(communication.GlobalComm, "INITED", True)
    mg.use_device(distributed=True)
    assert [call[0] for call in machine.told][-1] == "set_auto_parallel_context"
    assert ("init",) not in machine.told


def test_auto_without_a_launcher_trains_alone(machine: Machine):
    mg.use_device(distributed="auto")
    assert [call[0] for call in machine.told] == ["set_device", "set_context"]


def test_distributed_without_a_launcher_is_refused_before_anything_is_set(machine: Machine):
    with pytest.raises(
        mg.DeviceError, match=r"needs a launcher, none of MS_ROLE.* is set; .*msrun --worker_num=2"
    ):
        mg.use_device(distributed=True)
    assert machine.told == []


def test_a_distributed_dry_run_is_for_ascend_with_a_rank_size(machine, monkeypatch):
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "1")
    with pytest.raises(mg.DeviceError, match=r"dry run .* needs Ascend, RANK_SIZE and RANK_ID"):
        mg.use_device(distributed=True)
    monkeypatch.setenv("RANK_SIZE", "8")
    with pytest.raises(mg.DeviceError, match=r"dry run .* needs Ascend, RANK_SIZE and RANK_ID"):
        mg.use_device("CPU", distributed=True)
    mg.use_device(distributed=True)
    assert ("init",) in machine.told


def test_the_running_device_is_kept_and_only_the_mode_is_set(machine: Machine):
    machine.running = ("Ascend", 5)
    mg.use_device("Ascend")
    mg.use_device("Ascend", device_id=5)
    assert {call[0] for call in machine.told} == {"set_context"}


@pytest.mark.parametrize(
    ("target", "device_id", "shown"),
    [
        pytest.param("CPU", None, "'CPU'", id="other-target"),
        pytest.param("Ascend", 1, "'Ascend 1'", id="other-number"),
    ],
)
def test_another_device_than_the_running_one_is_refused(machine, target, device_id, shown):
    machine.running = ("Ascend", 5)
    with pytest.raises(
        mg.DeviceError,
        match=rf"target {shown} cannot be set any more.*\(Ascend 5\); call use_device",
    ):
        mg.use_device(target, device_id=device_id)
    assert machine.told == []


def test_a_device_that_mindspore_does_not_change_any_more_is_refused(machine, monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("The 'mindspore.set_device' can not be modified.\nC++ stack")

    monkeypatch.setattr(ms, "set_device", refuse)
    with pytest.raises(mg.DeviceError, match=r"can not be modified\.\); call use_device once"):
        mg.use_device("CPU")


def test_a_device_number_beyond_the_last_is_refused_with_the_count(machine: Machine):
    with pytest.raises(mg.DeviceError, match=r"device_id 8 .* 8 Ascend devices .* give 0 to 7"):
        mg.use_device(device_id=8)
    assert machine.told == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        pytest.param({"target": "ascend"}, mg.ArgumentError, "target 'ascend' .*'Ascend'", id="t"),
        pytest.param({"target": "GPU"}, mg.ArgumentError, "'GPU' is none of 'auto'", id="gpu"),
        pytest.param({"mode": 0}, mg.ArgumentError, "mode 0 is none of 'graph', 'py", id="mode"),
        pytest.param({"jit_level": "O2"}, mg.ArgumentError, "'O2' .* gives up O2 and GE", id="O2"),
        pytest.param({"distributed": "yes"}, mg.ArgumentError, "'yes' is none of True", id="dist"),
        pytest.param({"device_id": -1}, mg.ArgumentError, "device_id -1 is negative", id="id"),
        pytest.param({"device_id": "0"}, mg.ArgumentTypeError, "'0' is no integer", id="id-str"),
        pytest.param({"device_id": True}, mg.ArgumentTypeError, "True is no integer", id="id-bool"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_set(machine, given, error, message):
    with pytest.raises(error, match=message):
        mg.use_device(**given)
    assert machine.told == []


def run(program: str, *, launcher: tuple[str, ...] = (), **environment: str) -> str:
    """Run a program in a fresh process, where no device is taken yet."""
    Path("program.py").write_text(program, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*(launcher or (sys.executable,)), "program.py"],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": ROOT, "PATH": path, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FRESH = """
import mindspore as ms, msgrad as mg
assert mg.use_device("CPU", jit_level="O1") == "CPU"
assert ms.get_context("mode") == ms.GRAPH_MODE
total = float(ms.ops.ones((2, 3)).sum())
assert mg.use_device("CPU", mode="pynative", device_id=3) == "CPU"
assert ms.get_context("mode") == ms.PYNATIVE_MODE
try:
    mg.use_device("CPU", distributed=True)
except mg.DeviceError as error:
    print(total, "refused" if "launcher" in str(error) else error)
"""


def test_a_real_process_takes_the_cpu_computes_and_asks_again():
    assert run(FRESH).split() == ["6.0", "refused"]


TWO = """
import mindspore as ms, msgrad as mg
from mindspore import Tensor, communication, nn
mg.use_device("CPU", distributed="auto")
mg.use_device("CPU", distributed=True)
rank = communication.get_rank()
net = nn.Dense(1, 1, "ones", has_bias=False)
step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1.0)).set_train()
step(Tensor([[1.0 + 2.0 * rank]], ms.float32))
with open(f"rank{rank}.txt", "w") as file:
    file.write(f"{communication.get_group_size()} {net.weight.asnumpy().item()}")
"""


@pytest.mark.slow
def test_two_real_processes_average_their_gradients():
    msrun = str(Path(sys.executable).with_name("msrun"))
    run(
        TWO, launcher=(msrun, "--worker_num=2", "--local_worker_num=2", "--join=True",
        "--master_port=18765", "--log_dir=logs"), MS_NODE_TIMEOUT="5",
    )  # fmt: skip
    # gradients 1 and 3, averaged 2: 1 - 2 = -1 on both
    assert [Path(f"rank{rank}.txt").read_text() for rank in (0, 1)] == ["2 -1.0", "2 -1.0"]
