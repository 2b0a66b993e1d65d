"""The launchers check everything first, quote what they pass on, and start the right command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = ["run_standalone_train.sh", "run_distribute_train.sh", "run_eval.sh"]
TOOLS = "bash cat chmod dirname env mkdir rm sed sort uniq"

# Stands for an interpreter and for msrun: prints its arguments and what it was told besides.
SHOW = """#!/usr/bin/env bash
case "$1" in
-c) exit "${LACKS:-0}" ;;
-) exec "$REAL_PYTHON" "$@" ;;
esac
echo "${0##*/}"
for argument in "$@"; do printf '%s\\n' "$argument"; done
for name in HCCL_CONNECT_TIMEOUT HCCL_EXEC_TIMEOUT ASCEND_RT_VISIBLE_DEVICES CANN; do
    [ -z "${!name:-}" ] || echo "$name is ${!name}"
done
[ "${0##*/}" != msrun ] || python of msrun
"""


class Machine:
    """A project in a folder with a space, an interpreter, msrun, and no Ascend."""

    def __init__(self, folder: Path) -> None:
        self.project, self.folder = folder / "a project", folder / "user's folder"
        programs = folder / "bin"
        for made in (self.folder, programs, folder / "dev"):
            made.mkdir()
        shutil.copytree(ROOT / "scripts", self.project / "scripts")
        for tool in TOOLS.split():
            (programs / tool).symlink_to(shutil.which(tool) or "")
        for name in ("python", "msrun"):
            (programs / name).write_text(SHOW)
            (programs / name).chmod(0o755)
        (self.folder / "my config.yaml").write_text("seed: 1\n")
        (self.folder / "weights 1.ckpt").write_text("w")
        (self.folder / "the data").mkdir()
        self.environment = {
            "PATH": str(programs),
            "HOME": str(folder),
            "ASCEND_BASE": str(folder / "Ascend"),
            "DEVICES": str(folder / "dev"),
            "REAL_PYTHON": sys.executable,
        }

    def start(self, script: str, *arguments: str, **environment: str):
        """Return the exit code, the lines that were printed, and what was said."""
        done = subprocess.run(
            ["bash", str(self.project / "scripts" / script), *arguments],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    def cann(self, folder: str) -> Path:
        path = Path(self.environment["ASCEND_BASE"], folder, "set_env.sh")
        path.parent.mkdir(parents=True)
        path.write_text(f'export CANN="{folder}${{UNSET_BEFORE}}"\n')
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- wrong calls


@pytest.mark.parametrize(
    ("script", "arguments", "fact"),
    [
        *(pytest.param(s, [], "CONFIG is missing", id=f"no-config-{s}") for s in LAUNCHERS),
        *(
            pytest.param(s, ["--free", "x"], "unknown option --free", id=f"option-{s}")
            for s in LAUNCHERS
        ),
        pytest.param(LAUNCHERS[0], ["a", "b", "c"], "'c' is one too many", id="two-data-dirs"),
        pytest.param(LAUNCHERS[0], ["a", "--card"], "--card needs a value", id="no-value"),
        pytest.param(LAUNCHERS[0], ["a", "--card", "x"], "--card 'x' is no number", id="card"),
        pytest.param(LAUNCHERS[2], ["a", "b", "c", "d"], "'d' is one too many", id="eval"),
        pytest.param(LAUNCHERS[1], ["a"], "WORKERS is missing", id="no-workers"),
        pytest.param(LAUNCHERS[1], ["a", "2", "b", "3"], "'3' is one too many", id="ranks"),
        pytest.param(LAUNCHERS[1], ["a", "0"], "WORKERS '0' is no number from 1", id="no-worker"),
        pytest.param(LAUNCHERS[1], ["a", "2;ls"], "WORKERS '2;ls' is no number", id="workers"),
        pytest.param(
            LAUNCHERS[1], ["a", "2", "--port", "80"], "no number from 1024 to 65535", id="port"
        ),
        pytest.param(
            LAUNCHERS[1], ["a", "2", "--cards", "4-7"], "is no list as 4,5,6,7", id="cards"
        ),
        pytest.param(
            LAUNCHERS[1], ["a", "2", "--cards", "4,5,6"], "names 3 cards for 2 workers", id="count"
        ),
        pytest.param(LAUNCHERS[1], ["a", "2", "--cards", "4,4"], "a card twice", id="card-twice"),
        pytest.param(
            LAUNCHERS[1], ["a", "2", "--servers", "2"], "go together", id="servers-alone"
        ),
        pytest.param(
            LAUNCHERS[1], ["a", "2", "--servers", "2", "--server", "2", "--master", "h"],
            "--server '2' is no number from 0 to 1", id="server",
        ),
    ],
)  # fmt: skip
def test_a_wrong_call_is_answered_by_the_usage(machine, script, arguments, fact):
    code, printed, said = machine.start(script, *arguments)
    assert (code, printed) == (2, [])
    first, second = said.splitlines()[:2]
    assert first.startswith("msgrad: ")
    assert fact in first
    assert second.startswith(f"usage: bash scripts/{script} CONFIG ")


@pytest.mark.parametrize("script", LAUNCHERS)
def test_help_is_printed_and_nothing_started(machine, script):
    code, printed, said = machine.start(script, "--help")
    assert (code, said) == (0, "")
    assert printed[0].startswith(f"usage: bash scripts/{script} CONFIG ")


CONFIG = "my config.yaml"


@pytest.mark.parametrize(
    ("script", "arguments", "fact"),
    [
        pytest.param(LAUNCHERS[0], ["no.yaml"], "config 'no.yaml' is no file", id="config"),
        pytest.param(LAUNCHERS[0], ["."], "config '.' is no file", id="folder-as-config"),
        pytest.param(
            LAUNCHERS[0], [CONFIG, CONFIG], "data_dir 'my config.yaml' is no folder", id="data"
        ),
        pytest.param(
            LAUNCHERS[0], [CONFIG, "--resume", "none"], "resume 'none' is no folder", id="resume"
        ),
        pytest.param(LAUNCHERS[1], ["no.yaml", "2"], "config 'no.yaml' is no file", id="ranks"),
        pytest.param(
            LAUNCHERS[1], [CONFIG, "2", "--log_dir", CONFIG], "is no folder; give", id="logs"
        ),
        pytest.param(LAUNCHERS[2], [CONFIG, "no.ckpt"], "ckpt_path 'no.ckpt' is no", id="weights"),
    ],
)
def test_a_wrong_path_ends_it_before_anything_starts(machine, script, arguments, fact):
    code, printed, said = machine.start(script, *arguments)
    assert (code, printed) == (1, [])
    assert said.startswith("msgrad: ")
    assert fact in said
    assert len(said.splitlines()) == 1


# --- what is started


def data_of(machine: Machine) -> str:
    """What is passed on is YAML: in its quotes, of which one inside is doubled."""
    return str(machine.folder / "the data").replace("'", "''")


def test_standalone_starts_train_py_with_every_argument_whole(machine):
    code, printed, _ = machine.start(
        LAUNCHERS[0], CONFIG, "--card", "3", "the data", "name=it's $HOME *"
    )
    assert code == 0
    assert printed == [
        "python", f"{machine.project}/scripts/train.py", "--config", CONFIG, "--set",
        "name=it's $HOME *", "device_id=3", f"data_dir='{data_of(machine)}'",
    ]  # fmt: skip


def test_standalone_without_changes_passes_none_on(machine):
    _, printed, _ = machine.start(LAUNCHERS[0], CONFIG, "--resume", "the data")
    assert printed[2:] == ["--config", CONFIG, "--resume", "the data"]


def test_eval_starts_eval_py_with_the_weights(machine):
    code, printed, _ = machine.start(
        LAUNCHERS[2], CONFIG, "weights 1.ckpt", "batch_size=8", "the data"
    )
    assert code == 0
    assert printed == [
        "python", f"{machine.project}/scripts/eval.py", "--config", CONFIG,
        "--ckpt_path", f"{machine.folder}/weights 1.ckpt", "--set", "batch_size=8",
        f"data_dir='{data_of(machine)}'",
    ]  # fmt: skip


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_distribute_on_one_server_is_exactly_this_command_of_msrun(machine):
    port = free_port()
    code, printed, said = machine.start(
        LAUNCHERS[1], CONFIG, "2", "--cards", "6,7", "--port", str(port), "--log_dir", "my logs",
        "epoch_size=3", HCCL_EXEC_TIMEOUT="99",
    )  # fmt: skip
    assert code == 0
    logs = f"{machine.folder}/my logs"
    assert printed == [
        "msrun", "--worker_num=2", "--local_worker_num=2", "--master_addr=127.0.0.1",
        f"--master_port={port}", "--cluster_time_out=600", f"--log_dir={logs}", "--join=True",
        "--tail_worker_log=0", f"{machine.project}/scripts/train.py", "--config", CONFIG,
        "--set", "epoch_size=3", "distribute=true", "device_id=null",
        "HCCL_CONNECT_TIMEOUT is 1200", "HCCL_EXEC_TIMEOUT is 99",
        "ASCEND_RT_VISIBLE_DEVICES is 6,7",
        # what msrun starts as `python` is the interpreter that was chosen
        "python", "of", "msrun",
        "HCCL_CONNECT_TIMEOUT is 1200", "HCCL_EXEC_TIMEOUT is 99",
        "ASCEND_RT_VISIBLE_DEVICES is 6,7",
    ]  # fmt: skip
    assert f"2 workers here, server 0 of 1, scheduler 127.0.0.1:{port}, logs in {logs}" in said


def test_distribute_on_several_servers_counts_all_and_names_this_one(machine):
    code, printed, _ = machine.start(
        LAUNCHERS[1], CONFIG, "8", "the data",
        "--servers", "4", "--server", "2", "--master", "10.0.0.1", CLUSTER_TIME_OUT="900",
    )  # fmt: skip
    assert code == 0
    assert printed[:9] == [
        "msrun", "--worker_num=32", "--local_worker_num=8", "--master_addr=10.0.0.1",
        "--master_port=8118", "--node_rank=2", "--cluster_time_out=900",
        f"--log_dir={machine.folder}/msrun_log", "--join=True",
    ]  # fmt: skip
    assert f"data_dir='{data_of(machine)}'" in printed


def test_a_port_that_is_taken_is_named_before_msrun_starts(machine):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        code, printed, said = machine.start(LAUNCHERS[1], CONFIG, "2", "--port", str(port))
    assert (code, printed) == (1, [])
    assert f"port {port} is taken by another program; give another --port" in said


def test_the_python_of_the_user_is_what_msrun_starts(machine):
    own = machine.folder / "python3.11"
    shutil.copy(machine.folder.parent / "bin" / "python", own)
    port = str(free_port())
    code, printed, _ = machine.start(LAUNCHERS[1], CONFIG, "2", "--port", port, PYTHON=str(own))
    assert code == 0
    assert printed[printed.index("of") - 1] == "python3.11"


# --- what stands in the way


def test_a_python_that_lacks_mindspore_is_answered_by_the_install_line(machine):
    code, printed, said = machine.start(LAUNCHERS[0], CONFIG, PYTHON="python", LACKS="1")
    assert (code, printed) == (1, [])
    assert "PYTHON 'python' lacks MindSpore, PyYAML or rich; install them" in said
    assert f"python -m pip install -e '{machine.project}[tools]'" in said


def test_a_python_that_does_not_exist_is_named(machine):
    code, _, said = machine.start(LAUNCHERS[0], CONFIG, PYTHON="no-python")
    assert code == 1
    assert "PYTHON 'no-python' is no program; mend the path" in said


def test_without_cann_the_cpu_is_announced(machine):
    _, _, said = machine.start(LAUNCHERS[0], CONFIG)
    assert said == (
        "msgrad: no CANN: neither ascend-toolkit/set_env.sh nor cann/set_env.sh is in "
        f"{machine.environment['ASCEND_BASE']} or {machine.folder.parent}/Ascend; "
        "device_target auto takes the CPU\n"
    )


@pytest.mark.parametrize("folder", ["ascend-toolkit", "cann"])
def test_either_environment_file_of_cann_is_found_and_sourced(machine, folder):
    file = machine.cann(folder)
    (machine.folder.parent / "dev" / "davinci0").touch()
    _, printed, said = machine.start(LAUNCHERS[0], CONFIG)
    assert printed[-1] == f"CANN is {folder}"
    assert said == f"msgrad: CANN: {file}\n"


def test_cann_without_a_card_announces_the_cpu(machine):
    machine.cann("cann")
    _, _, said = machine.start(LAUNCHERS[2], CONFIG)
    assert said.splitlines()[1] == (
        "msgrad: CANN is there and no card (/dev/davinci*); device_target auto takes the CPU"
    )


def test_an_environment_that_is_set_already_is_left_as_it_is(machine):
    machine.cann("cann")
    (machine.folder.parent / "dev" / "davinci0").touch()
    _, printed, said = machine.start(LAUNCHERS[0], CONFIG, ASCEND_HOME_PATH="/opt/cann")
    assert said == ""
    assert printed[-1] == CONFIG


# --- how it ends

# As msrun does, 0 on Ctrl-C and 7 where a worker failed; and as MindSpore does amid a step.
ENDS = """#!/usr/bin/env bash
case "$1" in
-c) exit 0 ;;
-) exec "$REAL_PYTHON" "$@" ;;
*train.py) trap 'echo got SIGINT; trap - TERM; kill -TERM "$$"' INT ;;
*) trap 'echo got SIGINT; exit 0' INT ;;
esac
echo started
for _ in {1..600}; do sleep 0.1; done
exit 7
"""


def replace_programs(machine: Machine, sleep: str) -> None:
    path = Path(machine.environment["PATH"])
    for name in ("python", "msrun"):
        (path / name).write_text(ENDS)
    (path / "sleep").symlink_to(shutil.which(sleep) or "")


@pytest.mark.parametrize("script", LAUNCHERS[:2])
def test_ctrl_c_ends_a_training_with_a_word_and_130(machine: Machine, script: str):
    replace_programs(machine, "sleep")
    words = [] if script == LAUNCHERS[0] else ["2", "--port", str(free_port())]
    started = subprocess.Popen(
        ["bash", str(machine.project / "scripts" / script), CONFIG, *words],
        env=machine.environment, cwd=machine.folder, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "started\n"
    os.killpg(started.pid, signal.SIGINT)
    printed, said = started.communicate(timeout=30)
    assert (started.returncode, printed) == (130, "got SIGINT\n")
    assert said.endswith("msgrad: stopped; --resume goes on after the last epoch\n")
    assert "Terminated" not in said


@pytest.mark.parametrize("script", LAUNCHERS[:2])
def test_the_failure_of_a_training_is_that_of_the_launcher(machine: Machine, script: str):
    replace_programs(machine, "true")
    words = [] if script == LAUNCHERS[0] else ["2", "--port", str(free_port())]
    assert machine.start(script, CONFIG, *words)[:2] == (7, ["started"])


# --- what docs/ascend.md tells to type


def commands_of_the_guide() -> list[list[str]]:
    text = (ROOT / "docs" / "ascend.md").read_text(encoding="utf-8")
    lines = re.findall(r"^bash scripts/(run_.*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("command", commands_of_the_guide(), ids=" ".join)
def test_a_command_of_the_guide_is_accepted_and_names_a_config_that_is_there(machine, command):
    script, config, *others = command
    shutil.copytree(ROOT / "configs", machine.folder / "configs")
    for place in [word for word in others if "/" in word]:
        path = machine.folder / place.removeprefix("/data/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    others = [word.removeprefix("/data/") for word in others]
    if "distribute" in script and "--port" not in others:
        others += ["--port", str(free_port())]
    code, printed, said = machine.start(script, config, *others)
    assert (code, "usage" in said) == (0, False)
    assert config in printed
