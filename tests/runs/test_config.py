"""A config file: every key checked with file and line, changed from the command line, resolved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import msgrad as mg
from msgrad.runs import load_config
from msgrad.runs._keys import KINDS, OptimizerKeys, StepKeys

ROOT = Path(__file__).resolve().parents[2]
TASK = "def network(config): ...\ndef datasets(config): ...\n"
KNOWN = (
    "plan, stages, updates, audit, task, name, mode, device_target, device_id, distribute, "
    "data_dir, epoch_size, batch_size, ckpt_path, ckpt_save_dir, dataset_sink_mode, seed, "
    "jit_level, clip_norm, clip_value, accumulate, unreached, has_aux, loss_scale, optimizer, "
    "steps, task_args, best, "
    "early_stop"
)


def write(text: str, head: str = "task: t.py\n") -> str:
    """Write a config whose second line is the first of the text."""
    Path("t.py").write_text(TASK)
    Path("c.yaml").write_text(f"{head}{text}\n")
    return "c.yaml"


def refused(path: str, changes=()) -> str:
    with pytest.raises(mg.PlanError, match="; ") as told:
        load_config(path, changes)
    return str(told.value)


BROKEN = {
    "freez: [conv1]": (
        "key 'freez' of the file is unknown; did you mean 'freeze'? Then write it under 'plan', as "
        "- freeze: …"
    ),
    "freeze: [conv1]": (
        "key 'freeze' does not belong to the file; write it under 'plan', as - freeze: …"
    ),
    "learning_rate: 1": (
        "key 'learning_rate' does not belong to the file; write it under 'optimizer'"
    ),
    "lr: 1": "key 'lr' does not belong to the file; write learning_rate under 'optimizer'",
    "epochs: 3": (
        "key 'epochs' does not belong to the file; write epoch_size for the run, and epochs in a "
        "stage, under 'stages'"
    ),
    "device: CPU": "key 'device' does not belong to the file; write device_target",
    "batchsize: 3": "key 'batchsize' of the file is unknown; did you mean 'batch_size'?",
    "zzz: 1": f"key 'zzz' of the file is unknown; known are {KNOWN}",
    "seed: 1\nseed: 2": ":3: key 'seed' stands twice, first in line 2; keep one of them",
    "epoch_size: many": "epoch_size 'many' of the config is no whole number; give 1 or more",
    "epoch_size: true": "epoch_size True of the config is no whole number; give 1 or more",
    "epoch_size: 0": "epoch_size 0 of the config is below 1; give 1 or more",
    "seed: 1.5": "seed 1.5 of the config is no whole number; give 0 or more",
    "device_id: -1": "device_id -1 of the config is below 0; give 0 or more",
    "name: true": "name True of the config is no text; put it in quotes",
    "data_dir: [a]": "data_dir ['a'] of the config is no text; put it in quotes",
    "mode: grap": "mode 'grap' of the config is unknown; did you mean 'graph'?",
    "device_target: TPU": ("device_target 'TPU' of the config is unknown; did you mean 'CPU'?"),
    "jit_level: O2": "jit_level 'O2' of the config is unknown; give O0 or O1",
    "unreached: frieze": "unreached 'frieze' of the config is unknown; did you mean 'freeze'?",
    "distribute: maybe": "distribute 'maybe' of the config is no choice; give true, false or auto",
    "dataset_sink_mode: 1": ("dataset_sink_mode 1 of the config is no choice; give true or false"),
    "clip_norm: 0": ("clip_norm 0 of the config is 0; give a number above 0, or leave the key out"),
    "loss_scale: -1": "loss_scale -1 of the config is below 0; give a number above 0",
    "task_args: 3": "task_args 3 of the config is no mapping; write key: value lines",
    "optimizer: 3": "optimizer 3 of the config is no mapping; write key: value lines",
    "optimizer: {name: Momentun}": (
        "name 'Momentun' is no optimizer of mindspore.nn; did you mean 'Momentum'?"
    ),
    "optimizer: {name: Momentum}": ("momentum of optimizer Momentum is missing; give it a value"),
    "optimizer: {name: SGD, momentm: 0.9}": (
        "key 'momentm' of optimizer SGD is unknown; did you mean 'momentum'?"
    ),
    "optimizer: {lr: 1}": (
        "key 'lr' does not belong to optimizer AdamWeightDecay; write learning_rate"
    ),
    "optimizer: {learning_rate: fast}": (
        "learning_rate 'fast' of optimizer AdamWeightDecay is no number; give 0 or more"
    ),
    "optimizer: {weight_decay: -1}": (
        "weight_decay -1 of optimizer AdamWeightDecay is below 0; give 0 or more"
    ),
    "optimizer:\n  learning_rate: {min_lr: 1}": (
        ":3: learning_rate has no name; give that of a schedule of mindspore.nn"
    ),
    "optimizer:\n  learning_rate: {name: CosineDecay}": (
        ":3: name 'CosineDecay' is no schedule of mindspore.nn; did you mean 'CosineDecayLR'?"
    ),
    "optimizer:\n  learning_rate:\n    name: WarmUpLR\n    learning_rate: 1": (
        ":3: warmup_steps of schedule WarmUpLR is missing; give it a value"
    ),
    "steps: [d]": "steps ['d'] of the config is no mapping; write key: value lines",
    "steps: {d: {trains: d}}": "loss of step 'd' is missing; give it a value",
    "steps:\n  d: {trains: d, lose: a_loss, loss: b}": (
        ":3: key 'lose' of step 'd' is unknown; did you mean 'loss'?"
    ),
    "steps: {1 a: {trains: d, loss: x}}": "step '1 a' is no name; give letters and digits",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_key_that_cannot_be_used_is_refused_with_file_line_and_remedy(text):
    message = BROKEN[text]
    assert refused(write(text)) == f"c.yaml{message if message[0] == ':' else ':2: ' + message}"


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_lines():
    """Keys of the run, of its optimizer and of its plan, one line each; nothing was built."""
    text = "optimizer: {name: Momentum, momentum: 1, beta: 2}\nepoch_size: x\nplan:\n- freez: a"
    path = write(text, "mode: grap\n")
    with pytest.raises(mg.PlanError, match="task") as told:
        load_config(path)
    assert [(p.line, p.message.partition(" ")[0]) for p in told.value.problems] == [
        (None, "task"),
        (1, "mode"),
        (2, "key"),
        (3, "epoch_size"),
        (5, "key"),
    ]
    assert str(told.value).splitlines() == [str(p) for p in told.value.problems]


FILES = [
    pytest.param("- a", "c.yaml:1: the file holds ['a']; write plan:", id="list"),
    pytest.param("a: [", "c.yaml:2: the file is no YAML: expected the node content", id="yaml"),
    pytest.param("seed: 1", "c.yaml: task is missing; give the Python file that", id="no-task"),
    pytest.param(
        "task: tt.py",
        "c.yaml:1: task 'tt.py' is no file, seen from the config; did you mean 't.py'?",
        id="no-file",
    ),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_file_that_is_no_config_is_refused(text, message):
    assert refused(write(text, "")).startswith(message)


def test_a_file_that_is_not_there_is_named():
    message = "none.yaml: the file cannot be read: No such file or directory; give a YAML file"
    assert refused("none.yaml") == message


# --- changes


CHANGES = [
    pytest.param("epoch_size=3", "epoch_size", 3, id="number"),
    pytest.param("name=10", "name", "10", id="name-10"),
    pytest.param("distribute=true", "distribute", True, id="switch"),
    pytest.param("data_dir=", "data_dir", None, id="nothing"),
    pytest.param("ckpt_path=''", "ckpt_path", None, id="empty-text"),
    pytest.param(
        "optimizer.learning_rate=1e-3",
        "optimizer",
        OptimizerKeys("SGD", 1e-3, {"weight_decay": 0.1}),
        id="nested",
    ),
    pytest.param(
        "steps.d={trains: [a, 10], loss: l}", "steps", {"d": StepKeys(("a", "10"), "l")}, id="steps"
    ),
]
BASE = "seed: 4\noptimizer: {name: SGD, weight_decay: 0.1}\nplan: [{freeze: a}]"


@pytest.mark.parametrize(
    ("last", "wanted"),
    [("{train: head}", 6), ("{train: head, epochs: 4}", 9), ("", 5)],
    ids=["open", "closed", "alone"],
)
def test_the_first_stage_that_the_run_is_too_short_for_is_named_with_its_line(last, wanted):
    rows = "".join(f"- {stage}\n" for stage in ("{train: body, epochs: 5}", last) if stage)
    path = write(f"epoch_size: 3\nstages:\n{rows}")
    assert refused(path) == (
        f"c.yaml:4: stage 1 ends with epoch 5 and epoch_size is 3; shorten it, or give "
        f"epoch_size: {wanted} or more"
    )
    assert load_config(path, ["epoch_size=9"]).epoch_size == 9


@pytest.mark.parametrize(("change", "key", "value"), CHANGES)
def test_a_change_sets_one_key_and_leaves_the_others(change, key, value):
    plain, changed = load_config(write(BASE)), load_config(write(BASE), [change])
    assert getattr(changed, key) == value
    assert {k for k in vars(plain) if vars(plain)[k] != vars(changed)[k]} - {"source"} <= {key}
    assert plain.seed == changed.seed == 4


LAYERS = [
    pytest.param(["plan.0.freeze=10"], [("10",)], id="replaced"),
    pytest.param(["plan.1.freeze=10"], [("a",), ("10",)], id="added"),
    pytest.param(["plan.1={freeze: [10, 1]}"], [("a",), ("10", "1")], id="added-list"),
    pytest.param(["plan=[]"], [], id="none"),
]


@pytest.mark.parametrize(("changes", "patterns"), LAYERS)
def test_a_layer_named_10_on_the_command_line_is_that_layer(changes, patterns):
    plan = load_config(write(BASE), changes).plan
    assert [rule.patterns for rule in plan.rules] == patterns


WRONG = {
    "epoch_size": "change 'epoch_size' has no key and value; write key=value",
    "=3": "change '=3' has no key and value; write key=value",
    "epoch_sise=3": "key 'epoch_sise' of the file is unknown; did you mean 'epoch_size'?",
    "name=[a": (
        "the value is no YAML: expected ',' or ']', but got '<stream end>'; write key: value lines"
    ),
    "seed.x=1": "seed is 4, no mapping; 'x' cannot be set in it",
    "plan.5.freeze=b": (
        "plan is a list of 1, and '5' is no place in it; give 0 to 1, the last to add one"
    ),
    "optimizer.learning_rate=many": (
        "learning_rate 'many' of optimizer SGD is no number; give 0 or more"
    ),
    "plan.0.freeze=": "freeze of rule 1 is empty; give it a value, or drop the key",
}


@pytest.mark.parametrize("change", WRONG)
def test_a_change_that_cannot_be_made_is_named_as_it_was_typed(change):
    assert refused(write(BASE), [change]) == f"--set {change}: {WRONG[change]}"


def test_a_change_does_not_hide_the_line_of_what_it_left():
    message = refused(
        write("seed: x\noptimizer: {name: SGD, momentm: 1}"), ["optimizer.nesterov=1"]
    )
    assert message.splitlines() == [
        "c.yaml:2: seed 'x' of the config is no whole number; give 0 or more",
        "c.yaml:3: key 'momentm' of optimizer SGD is unknown; did you mean 'momentum'?",
    ]


# --- paths


def test_files_that_the_run_reads_are_looked_for_before_anything_is_built():
    config = load_config(write("data_dir: nowhere\nckpt_path: lost.ckpt"), ["ckpt_path=gone.ckpt"])
    with pytest.raises(mg.PlanError, match="nowhere") as told:
        config.check_paths()
    here = str(Path.cwd())
    assert str(told.value).splitlines() == [
        f"c.yaml:2: data_dir 'nowhere' is no folder, seen from {here!r}; give one that exists",
        f"--set ckpt_path=gone.ckpt: ckpt_path 'gone.ckpt' is no file, seen from {here!r}; give "
        "one that exists",
    ]
    Path("nowhere").mkdir()
    Path("gone.ckpt").touch()
    config.check_paths()


def test_a_task_that_reads_data_is_answered_by_how_to_give_it():
    config = load_config(write(""))
    message = "data_dir is missing, and this task reads one; give --set data_dir=PATH"
    with pytest.raises(mg.PlanError, match=re.escape(message)):
        config.data_folder()
    Path("here").mkdir()
    assert load_config(write(""), ["data_dir=here"]).data_folder() == Path("here")


# --- the resolved file


SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_is_named_after_its_file_and_its_resolved_file_is_the_same_run(path):
    config = load_config(path, ["seed=7"])
    assert path.stem in (config.name, f"{config.name}_ascend")
    config.save("runs/it/config.yaml")
    again = load_config("runs/it/config.yaml")
    assert (again.seed, again.save_dir) == (7, config.save_dir)
    assert again.to_dict(Path.cwd()) == config.to_dict(Path.cwd())
    assert set(yaml.safe_load(again.to_yaml())) >= set(KINDS)
    assert (Path("runs/it") / again.task).resolve() == (path.parent / config.task).resolve()


def test_the_name_and_the_folder_of_a_run_have_defaults():
    config = load_config(write(""))
    assert (config.name, config.save_dir) == ("c", Path("runs/c"))
    assert load_config(write(""), ["ckpt_save_dir=x"]).save_dir == Path("x")
