"""The command line: what it prints, its exit codes, and that an error is one line."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

import msgrad as mg
from msgrad.cli import _diff, _main
from msgrad.cli._terminal import print_table

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ["plan", "train", "audit", "diff", "doctor"]


def save(path: str, **values: np.ndarray) -> str:
    entries = [{"name": n.replace("__", "."), "data": Tensor(v)} for n, v in values.items()]
    ms.save_checkpoint(entries, path)
    return path


ZERO, ONE = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)


@pytest.fixture
def files():
    """Two checkpoints: the head moved, and the first of three layers."""
    layers = {f"layers__{n}__w": ZERO for n in range(3)}
    save("a.ckpt", **layers, head__w=ZERO, moments__head__w=ZERO)
    save("b.ckpt", **{**layers, "layers__0__w": ONE}, head__w=ONE, moments__head__w=ONE)


def run(capsys, *arguments):
    """Run a command in this process: exit code, output, errors."""
    try:
        code = _main.main(arguments)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.usefixtures("files")
def test_diff_tells_what_moved_and_folds_what_is_equal(capsys):
    assert run(capsys, "diff", "a.ckpt", "b.ckpt") == (
        0,
        "weight        held  n  max change  l2  bits changed\n"
        "layers.0.w          1  1           2   4 of 4\n"
        "layers.{1,2}        2  0           0   bits equal\n"
        "head.w              1  1           2   4 of 4\n"
        "2 of 4 weights moved; 1 values of optimizer state not compared\n",
        "",
    )


HELD = [
    pytest.param(["layers.1", "layers.2"], 0, "held: 0 of 2 moved", id="stayed"),
    pytest.param(["layers"], 1, "held: 1 of 3 moved: layers.0.w", id="one-moved"),
    pytest.param(["*", "!head"], 1, "held: 1 of 3 moved: layers.0.w", id="taken-away"),
    pytest.param(["layers.{1..2}"], 0, "held: 0 of 2 moved", id="range"),
]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("patterns", "code", "line"), HELD)
def test_diff_ends_with_1_where_a_held_weight_moved(capsys, patterns, code, line):
    ended, output, errors = run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", *patterns)
    assert (ended, output.splitlines()[-1], errors) == (code, line, "")


@pytest.mark.usefixtures("files")
def test_a_held_weight_that_moved_stands_first(capsys):
    _, output, _ = run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "head")
    assert output.splitlines()[1].split()[:2] == ["head.w", "MOVED"]


def test_held_10_is_the_layer_10_and_no_other(capsys):
    names = {f"{n}__w": ZERO for n in (0, 1, 10)}
    save("a.ckpt", **names)
    save("b.ckpt", **{**names, "0__w": ONE, "1__w": ONE})
    assert run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "10")[0] == 0
    assert run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "1")[0] == 1


LOST = [
    pytest.param({"head__w": ZERO}, "only in A: body.w", id="missing"),
    pytest.param({"head__w": ZERO, "body__w": ZERO[0]},
                 "of another shape or type (A / B): body.w: float32 (2, 2) / float32 (2,)",
                 id="shape"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "line"), LOST)
def test_a_held_weight_that_cannot_be_compared_did_not_stay(capsys, values, line):
    save("a.ckpt", head__w=ZERO, body__w=ZERO)
    save("b.ckpt", **values)
    assert run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "head")[0] == 0
    code, output, _ = run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "body")
    assert code == 1
    assert output.splitlines()[-3:] == [
        line, "0 of 1 weights moved", "held: 1 of 1 moved: body.w"
    ]  # fmt: skip


@pytest.mark.usefixtures("files")
def test_diff_for_machines_is_json_with_the_same_exit_code(capsys):
    code, output, _ = run(capsys, "diff", "a.ckpt", "b.ckpt", "--held", "layers", "--json")
    content = json.loads(output)
    assert (code, content["held_moved"]) == (1, ["layers.0.w"])
    assert content["held"] == ["layers.0.w", "layers.1.w", "layers.2.w"]
    assert content["state"] == ["moments.head.w"]
    assert content["rows"] == json.loads(mg.diff_checkpoints("a.ckpt", "b.ckpt").to_json())["rows"]


def test_a_thousand_moved_weights_are_cut_and_counted(capsys):
    save("a.ckpt", **{f"w{n}": ZERO for n in range(1000)})
    save("b.ckpt", **{f"w{n}": ONE for n in range(1000)})
    _, output, _ = run(capsys, "diff", "a.ckpt", "b.ckpt")
    assert len(output.splitlines()) == 63
    assert output.splitlines()[-2:] == [
        "… and 940 more lines; --json has them all", "1000 of 1000 weights moved"
    ]  # fmt: skip


UNUSABLE = [
    pytest.param(["diff", "a.ckpt", "no.ckpt"], r"^msgrad: path 'no\.ckpt' is no file; give",
                 id="no-file"),
    pytest.param(["diff", "a.ckpt", "bad.ckpt"], r"^msgrad: path 'bad\.ckpt' of 4 bytes cannot be",
                 id="damaged"),
    pytest.param(["diff", "a.ckpt", "b.ckpt", "--held", "heat"],
                 r"^msgrad: pattern 'heat' matched none of 4 names; did you mean 'head'",
                 id="no-match"),
    pytest.param(["diff", "a.ckpt"], r"^msgrad diff: the following arguments are required: B; see",
                 id="too-few"),
    pytest.param(["diff", "a.ckpt", "b.ckpt", "--helt", "x"],
                 r"^msgrad: unrecognized arguments: --helt x; see msgrad --help$", id="option"),
    pytest.param(["dif"], r"^msgrad: argument COMMAND: invalid choice: 'dif'", id="command"),
    pytest.param([], r"^msgrad: the following arguments are required: COMMAND; see", id="nothing"),
]  # fmt: skip


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("arguments", "message"), UNUSABLE)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(capsys, arguments, message):
    Path("bad.ckpt").write_bytes(b"abcd")
    code, output, errors = run(capsys, *arguments)
    assert (code, output) == (2, "")
    assert re.search(message, errors)
    assert errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--debug", "diff"], ["diff", "--debug"]])
def test_debug_shows_where_an_error_comes_from(capsys, arguments):
    code, _, errors = run(capsys, *arguments, "no.ckpt", "no.ckpt")
    assert code == 2
    assert "Traceback" in errors
    assert "in read_checkpoint" in errors
    assert errors.splitlines()[-1].startswith("msgrad: path 'no.ckpt' is no file")


def test_an_error_inside_keeps_its_lines_and_is_exit_code_3(capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(_diff, "diff_checkpoints", broken)
    assert run(capsys, "diff", "a", "b") == (
        3,
        "",
        "msgrad: RuntimeError: first line\nsecond line\n",
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(capsys, command):
    code, output, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"example:\n  msgrad {command}" in output
    assert re.findall(r"^  ([0-9])  \w", output, re.MULTILINE) == ["0", "1", "2", "3"]
    assert "--json" in output


def test_help_of_msgrad_names_every_command(capsys):
    _, output, _ = run(capsys, "--help")
    assert re.findall(r"^    (\w+)  ", output, re.MULTILINE) == COMMANDS


def test_the_version_is_that_of_the_package(capsys):
    assert run(capsys, "--version") == (0, f"msgrad {mg.__version__}\n", "")


def test_the_command_is_installed_under_its_name():
    assert '"msgrad = msgrad.cli:main"' in (ROOT / "setup.py").read_text(encoding="utf-8")


def started(arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m msgrad {arguments}"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.usefixtures("files")
def test_python_m_msgrad_is_the_same_command():
    done = started("diff a.ckpt b.ckpt --held layers")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "held: 1 of 3 moved: layers.0.w"
    assert done.stderr == ""


@pytest.mark.usefixtures("files")
def test_what_mindspore_logs_of_a_file_that_it_cannot_read_is_not_printed_beside_the_error():
    # MindSpore writes complex numbers and cannot read them
    save("bad.ckpt", w=np.ones(2, np.complex64))
    done = started("diff a.ckpt bad.ckpt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("msgrad: path 'bad.ckpt' of ")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error():
    save("a.ckpt", **{f"w{n}{'x' * 200}": ZERO for n in range(3000)})
    done = started("diff a.ckpt a.ckpt --json | head -1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


class Terminal(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self):
        return True


def test_on_a_terminal_the_table_is_drawn_by_rich():
    terminal = Terminal()
    print_table(("weight", "change"), [("fc[bold].w", "0.5")], terminal)
    assert "─" in terminal.getvalue()
    assert "fc[bold].w" in terminal.getvalue()


def test_without_rich_the_table_is_plain_on_a_terminal_too(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    terminal = Terminal()
    print_table(("weight", "change"), [("fc.w", "0.5")], terminal)
    assert terminal.getvalue() == "weight  change\nfc.w    0.5\n"
