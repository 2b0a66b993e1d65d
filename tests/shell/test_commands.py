"""The shell commands set themselves up, once, and say in one line why they cannot."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "bash dirname df awk cat cksum chmod cp cut env flock grep head mkdir rm sed sleep tail"

# Stands for an interpreter: logs its calls, makes environments of copies of itself, and its pip
# does as the test says.
PYTHON = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip") printf '%s\\n' "$PIP_SAYS" && exit "$PIP_RETURNS" ;;
"-m pytest") echo "pytest ${!#} in $PWD" ;;
"- "*) [ -z "$UNFIT" ] || echo "$UNFIT" ;;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """A project in a folder with a space, and a machine with one Python and plenty of disk."""
    project, programs = tmp_path / "a project", tmp_path / "bin"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    shutil.copy(ROOT / "setup.py", project)
    programs.mkdir()
    for tool in TOOLS.split():
        if found := shutil.which(tool):
            (programs / tool).symlink_to(found)
    return Machine(project, programs)


class Machine:
    """Runs a command of the project and remembers what the interpreters were called with."""

    def __init__(self, project, programs):
        self.project, self.programs = project, programs
        self.calls = project.parent / "calls"
        self.environment = {
            "PATH": str(programs),
            "CALLS": str(self.calls),
            "PIP_SAYS": "",
            "PIP_RETURNS": "0",
            "UNFIT": "",
        }
        self.program("python3.11", PYTHON)
        self.disk(50_000_000)

    def program(self, name, text):
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def disk(self, free_kilobytes):
        self.program("df", f"#!/usr/bin/env bash\necho header\necho disk 0 0 {free_kilobytes}\n")

    def start(self, *arguments, **environment):
        """Start test.sh from another folder; return exit code, output, and the calls of pip."""
        self.calls.write_text("")
        done = subprocess.run(
            ["bash", str(self.project / "scripts" / "test.sh"), *arguments],
            env=self.environment | environment,
            cwd=self.project.parent,
            capture_output=True,
            text=True,
        )
        pip = [line for line in self.calls.read_text().splitlines() if line.startswith("-m pip")]
        return done.returncode, done.stdout, done.stderr, pip


def test_the_first_start_installs_and_passes_the_arguments_on(machine):
    code, output, _, pip = machine.start("-q")
    assert (code, output) == (0, f"pytest -q in {machine.project}\n")
    assert len(pip) == 1
    assert pip[0].endswith(f"-e {machine.project}[test]")


def test_the_second_start_installs_nothing(machine):
    machine.start()
    code, output, errors, pip = machine.start("-q")
    assert (code, errors, pip) == (0, "", [])
    assert output.startswith("pytest -q")


def test_another_requirement_is_installed_into_the_same_environment(machine):
    machine.start()
    with (machine.project / "setup.py").open("a") as file:
        file.write("# one more requirement\n")
    _, _, errors, pip = machine.start()
    assert len(pip) == 1
    assert "making" not in errors


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda venv: (venv / "bin" / "python").unlink(), id="no-interpreter"),
        pytest.param(lambda venv: (venv / "installing").touch(), id="killed-while-installing"),
        pytest.param(lambda venv: shutil.rmtree(venv / "bin"), id="empty"),
    ],
)
def test_a_broken_environment_is_made_anew(machine, damage):
    machine.start()
    damage(machine.project / ".venv")
    code, _, errors, pip = machine.start()
    assert (code, len(pip)) == (0, 1)
    assert "remaking" in errors


FAULTS = [
    pytest.param("NewConnectionError: refused", "package index cannot be reached", id="no-network"),
    pytest.param("[Errno 28] No space left on device", "the disk is full", id="full-disk"),
    pytest.param("[Errno 13] Permission denied: 'x'", "permission denied", id="rights"),
    pytest.param("a\nERROR: no wheel for this\nb", "ERROR: no wheel for this", id="other"),
]


@pytest.mark.parametrize(("pip_says", "message"), FAULTS)
def test_what_pip_cannot_do_is_one_line_and_its_pages_stay_in_the_log(machine, pip_says, message):
    code, output, errors, _ = machine.start(PIP_SAYS=pip_says, PIP_RETURNS="1")
    last = errors.splitlines()[-1]
    log = machine.project / ".venv" / "install.log"
    assert (code, output) == (1, "")
    assert message in last
    assert str(log) in last
    assert log.read_text() == f"{pip_says}\n"


def test_after_a_failed_start_the_next_one_installs(machine):
    machine.start(PIP_RETURNS="1")
    code, output, _, pip = machine.start("-q")
    assert (code, len(pip)) == (0, 1)
    assert output.startswith("pytest -q")


def test_without_a_python_one_line_says_what_to_install(machine):
    (machine.programs / "python3.11").unlink()
    code, _, errors, _ = machine.start()
    assert code == 1
    assert errors == (
        "msgrad: no Python 3.10 to 3.12 found; "
        "install one, or name it: PYTHON=/path/to/python3.11\n"
    )


def test_a_python_that_does_not_fit_is_named_with_the_reason(machine):
    code, _, errors, _ = machine.start(UNFIT="is Python 3.13")
    assert code == 1
    assert f"({machine.programs}/python3.11 is Python 3.13)" in errors


def test_a_python_that_exists_and_does_not_run_is_passed_over(machine):
    machine.program("python3.12", "#!/usr/bin/env bash\nexit 127\n")
    code, _, errors, _ = machine.start()
    assert code == 0
    assert f"({machine.programs}/python3.11)" in errors


def test_a_disk_with_too_little_room_is_said_before_anything_is_installed(machine):
    machine.disk(100_000)
    code, _, errors, pip = machine.start()
    assert (code, pip) == (1, [])
    assert errors.splitlines()[-1].startswith("msgrad: the disk is full: 97 MB free")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(machine):
    machine.project.chmod(0o500)
    code, _, errors, _ = machine.start()
    machine.project.chmod(0o700)
    assert code == 1
    assert f"cannot write to {machine.project}" in errors
