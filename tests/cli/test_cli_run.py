"""msgrad plan, train and audit: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import mindspore as ms
import pytest

from msgrad.cli import Progress, _main, _train

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "configs" / "digits_freeze_conv1.yaml")
TASK = ROOT / "tests" / "nets" / "small_task.py"


@pytest.fixture
def small():
    """A config over two small layers, of which nothing is compiled but what a gradient reaches."""
    Path("c.yaml").write_text(
        f"task: {TASK}\nmode: pynative\ndevice_target: CPU\nepoch_size: 2\nbatch_size: 8\n"
        "optimizer: {name: SGD, learning_rate: 0.1}\nunreached: allow\nplan: [{freeze: body}]\n"
    )
    yield "c.yaml"
    ms.set_context(mode=ms.GRAPH_MODE)


def run(capsys, *arguments):
    """Run a command in this process: exit code, output, errors."""
    capsys.readouterr()
    code = _main.main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


# --- plan


def test_plan_tells_rules_fates_and_memory(capsys):
    """SGD keeps a velocity and a step for each number; 13 % of Adam's two are conv1's."""
    assert run(capsys, "plan", DIGITS) == (
        0,
        """\
digits_freeze_conv1: 7 parameters, 3.0 kB; nothing was compiled; --reach compiles the gradient graph
  to find what it reaches

rule                                  does          takes
rule 1 (digits_freeze_conv1.yaml:14)  freeze conv1  1 weight: conv1

weights    n  size    the run
conv1      1  384 B   frozen by rule 1
conv{2,3}  4  416 B   trains at 0.005, decay 0.1
head       2  2.2 kB  trains at 0.005, decay 0.1

         trains          stays         optimizer memory  saved
the run  6       2.6 kB  1      384 B  5.2 kB            13 % of 6.0 kB
""",
        "",
    )


def test_plan_has_a_column_for_each_stage(capsys):
    stages = "stages=[{train: head, epochs: 2}, {train: '*'}]"
    changes = ("--set", "plan=[]", stages, "updates={head.bias: non_negative}")
    code, output, _ = run(capsys, "plan", DIGITS, *changes)
    assert code == 0
    assert [re.split(r"  +", line) for line in output.splitlines()[-8:-4]] == [
        ["weights", "n", "size", "stage 1, 2 epochs", "stage 2"],
        ["conv{1..3}", "5", "800 B", "frozen", "trains at 0.005, decay 0.1"],
        ["head.weight", "1", "2.2 kB", *["trains at 0.005, decay 0.1"] * 2],
        ["head.bias", "1", "40 B", *["trains at 0.005, decay 0.1, changed by update 1"] * 2],
    ]


def test_plan_for_machines_holds_the_changes_of_the_command_line(capsys):
    code, output, _ = run(capsys, "plan", DIGITS, "--json", "--set", "plan.0.freeze=head")
    content = json.loads(output)
    frozen = [fate["name"] for fate in content["stages"][0]["fates"] if fate["fate"] == "frozen"]
    assert (code, frozen) == (0, ["head.weight", "head.bias"])
    place = "digits_freeze_conv1.yaml:14, --set plan.0.freeze=head"
    assert content["rules"][0]["rule"] == f"rule 1 ({place})"


def test_plan_with_reach_finds_a_stop_in_the_code_of_the_network(capsys):
    by_hand = str(ROOT / "configs" / "digits_stop_by_hand.yaml")
    code, output, _ = run(capsys, "plan", by_hand, "--reach", "--set", "unreached=freeze")
    assert code == 0
    assert re.search(r"^conv1 +1  384 B   stopped: no gradient reaches it$", output, re.MULTILINE)
    assert "the gradient graph was compiled" in output


PROBLEMS = [
    pytest.param(["epoch_sise=3"], ["--set epoch_sise=3: key 'epoch_sise' of the file is unknown; "
                 "did you mean 'epoch_size'?"], id="key"),
    pytest.param(["epoch_size=x", "plan.0.freeze=con1"],
                 ["--set epoch_size=x: epoch_size 'x' of the config is no whole number; give 1 or "
                  "more", "--set plan.0.freeze=con1: rule 1: pattern 'con1' matched none of 7 "
                  "parameters; did you mean 'conv1'?"], id="value"),
    pytest.param(["plan.0.freeze=[con1, haed]"],
                 ["--set plan.0.freeze=[con1, haed]: rule 1: pattern 'con1' matched none of 7 "
                  "parameters; did you mean 'conv1'?",
                  "--set plan.0.freeze=[con1, haed]: rule 1: pattern 'haed' matched none of 7 "
                  "parameters; did you mean 'head'?"], id="patterns"),
]  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "train", "audit"])
@pytest.mark.parametrize(("changes", "lines"), PROBLEMS)
def test_what_cannot_be_used_is_a_line_for_each_problem_and_exit_code_2(
    capsys, command, changes, lines
):
    code, output, errors = run(capsys, command, DIGITS, "--set", *changes, "device_target=CPU")
    assert (code, output) == (2, "")
    assert errors.splitlines() == [f"msgrad: {line}" for line in lines]


def test_a_config_behind_set_is_taken_for_a_change_and_the_way_out_is_said(capsys):
    with pytest.raises(SystemExit) as ended:
        _main.main(["plan", "--set", "seed=1", DIGITS])
    message = "msgrad plan: the following arguments are required: CONFIG, before --set; see msgrad "
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{message}plan --help\n")


IN_THE_TASK = [
    pytest.param("network", "def network(config):\n    return Net(3, 4, 5)\n", "TypeError: ",
                 id="network"),
    pytest.param("evaluate", "def evaluate(net, dataset):\n    return 1 / 0\n", "ZeroDivisionError",
                 id="evaluate"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "code", "message"), IN_THE_TASK)
def test_an_error_inside_a_task_shows_its_file_and_line(capsys, small, function, code, message):
    Path("t.py").write_text(f"from tests.nets.small_task import *\n\n\n{code}")
    ended, _, errors = run(capsys, "train", small, "--set", "task=t.py")
    lines = errors.splitlines()
    assert ended == 2
    assert lines[0].startswith(f"msgrad: {message}")
    assert lines[-1] == "msgrad: in t.py:5; --debug shows how it came there"


def test_all_problems_are_told_at_once_whatever_kind_they_are(capsys, small):
    Path("c.yaml").write_text(
        f"task: {TASK}\nepoch_sise: 2\ndata_dir: none\ntask_args: {{ded: true}}\n"
        "plan:\n- freeze: bady\n- {freeze: body, at: output}\n- stop: heat\n"
        "stages:\n- {train: haed, epochs: 1, lr_scale: 0.1}\n- {train: '*'}\n"
        "steps: {a: {trains: bodi, loss: a_los}}\n"
    )
    code, _, errors = run(capsys, "plan", small)
    told = [line.removeprefix("msgrad: c.yaml:") for line in errors.splitlines()]
    assert code == 2
    assert [line.partition(";")[0] for line in told] == [
        "2: key 'epoch_sise' of the file is unknown",
        "4: key 'ded' of task '" + str(TASK) + "' is unknown",
        "6: rule 1: pattern 'bady' matched none of 4 parameters",
        "7: key 'at' does not belong to rule 2",
        "8: rule 3: pattern 'heat' matched none of 2 cells",
        "10: key 'lr_scale' does not belong to stage 1",
        "10: stage 1: pattern 'haed' matched none of 4 parameters",
        "12: step 'a': pattern 'bodi' matched none of 4 parameters",
    ]
    assert "it is a field of a rule of kind group; write that under 'plan'" in told[5]


def test_files_tasks_and_patterns_are_told_together_where_all_keys_are_right(capsys, small):
    changes = ("data_dir=none", "plan.0.freeze=bady")
    _, _, errors = run(capsys, "train", small, "--set", *changes)
    assert [line.partition(": ")[2].partition(": ")[0] for line in errors.splitlines()] == [
        "--set data_dir=none", "--set plan.0.freeze=bady"
    ]  # fmt: skip


# --- train


def test_train_tells_epochs_what_moved_and_what_was_held(capsys, small):
    code, output, errors = run(capsys, "train", small)
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "c on CPU, pynative mode, 2 epochs"
    pattern = r"epoch {}/2  loss 0\.\d{{4}}  accuracy [01]\.\d{{3}}  \d+\.\d s"
    assert [bool(re.fullmatch(pattern.format(n), lines[n])) for n in (1, 2)] == [True, True]
    assert [line.split()[:3] for line in lines[4:6]] == [
        ["body", "2", "held,"],
        ["head", "2", "moved"],
    ]
    assert lines[7].startswith("best: accuracy ")
    assert [lines[6], *lines[8:]] == [
        "held: 2 of 2 kept their bits",
        "wrote runs/c/: config.yaml, figures.json, weights.ckpt, best.ckpt, last/",
    ]


def test_train_for_machines_prints_json_alone_and_goes_on_with_a_run(capsys, small):
    assert run(capsys, "train", small, "--json", "--set", "epoch_size=1")[0] == 0
    code, output, _ = run(capsys, "train", small, "--json", "--resume", "runs/c")
    content = json.loads(output)
    assert (code, [epoch["epoch"] for epoch in content["epochs"]]) == (0, [2])
    assert content == json.loads(Path("runs/c/figures.json").read_text())


def test_a_run_that_goes_on_says_since_when_its_weights_changed(capsys, small):
    eager = ("--set", "mode=pynative", "unreached=allow")
    first = run(capsys, "train", small, *eager, "epoch_size=1")[1]
    second = run(capsys, "train", small, "--resume", "runs/c", *eager)[1]
    assert re.search(r"^weights +n +largest change$", first, re.MULTILINE)
    assert re.search(r"^weights +n +largest change since epoch 1$", second, re.MULTILINE)


def test_train_ends_with_1_where_a_held_weight_moved(capsys, small):
    """An evaluation that writes into the network does what no optimizer could."""
    Path("t.py").write_text(
        "from tests.nets.small_task import *\n"
        "def evaluate(net, dataset):\n"
        "    net.body.bias.set_data(net.body.bias + 1)\n"
        "    return {}\n"
    )
    code, output, _ = run(capsys, "train", small, "--set", "task=t.py")
    assert code == 1
    assert "held: 1 of 2 kept their bits; moved: body.bias" in output
    assert re.search(r"^body\.bias +1  held, MOVED +2$", output, re.MULTILINE)


def test_train_ends_with_1_where_the_audit_before_it_finds_problems(capsys, small):
    changes = [
        "mode=graph",
        "plan=[]",
        "task_args.dead=true",
        "audit={steps: 1}",
        "unreached=freeze",
        "epoch_size=1",
        "stages=[{train: '*'}]",
    ]
    code, output, errors = run(capsys, "train", small, "--set", *changes)
    assert (code, output) == (1, "c on CPU, graph mode, 1 epoch, 1 stage\n")
    assert "msgrad: audit found 2 problems\nbody.weight: unreached: " in errors
    assert not Path("runs/c/last").exists()


def test_train_that_is_stopped_says_how_to_go_on(capsys, small, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_train, "train", stopped)
    code, _, errors = run(capsys, "train", small)
    assert (code, errors) == (130, "\nmsgrad: stopped; --resume goes on after its last epoch\n")


def test_the_count_of_steps_is_written_on_a_terminal_alone(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for out, expected in ((Terminal(), "\r\033[Kstep 1/2\r\033[K"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stdout", out)
        progress = Progress()
        progress(1, 2)
        progress(2, 2)
        assert out.getvalue() == expected


# --- audit


def test_audit_ends_with_1_where_it_finds_problems_and_writes_a_page(capsys, small):
    graph = ["mode=graph", "unreached=freeze"]
    code, output, _ = run(capsys, "audit", small, "--html", "a.html", "--set", *graph)
    assert (code, Path("a.html").read_text()[:15]) == (0, "<!DOCTYPE html>")
    assert output.splitlines()[0] == (
        "audit of 3 steps, 4 parameters: 2 trained, 2 held; no problem"
    )
    assert "held: body: frozen by rule 1 (c.yaml:8)" in output
    dead = [*graph, "plan=[]", "task_args.dead=true", "audit={steps: 1}", "data_dir=none"]
    code, output, errors = run(capsys, "audit", small, "--json", "--set", *dead)
    (found,) = json.loads(output)
    assert (code, found["steps"], found["stage"], found["step"]) == (1, 1, None, "train")
    assert [row["verdict"] for row in found["rows"]] == ["unreached"] * 2 + ["trained"] * 2
    assert "msgrad: --set data_dir=none: data_dir 'none' is no folder" in errors
    assert "msgrad: the audit takes a batch of the task" in errors
