"""The digits: data, configs, and runs of the training script."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from mindspore import Tensor
from rich.console import Console

import msgrad as mg
import train
from config import Config, Optimizer, load_config
from digits import DigitsNet, digits_dataset, load_digits

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = sorted((ROOT / "configs").glob("digits_*.yaml"))
STEPS_PER_EPOCH = 1437 // 32
EVERY_WEIGHT = [
    "conv1.weight",
    "conv2.weight",
    "conv2.bias",
    "conv3.weight",
    "conv3.bias",
    "head.weight",
    "head.bias",
]


def run(name, *changes):
    """Train in this process; return what was printed and what was written."""
    config = load_config(str(ROOT / "configs" / f"{name}.yaml"), changes)
    output = io.StringIO()
    assert train.run(config, Console(file=output, width=80))
    folder = Path("runs", config.name)
    return output.getvalue(), json.loads((folder / "figures.json").read_text()), folder


def changes_of(figures):
    return {layer["name"]: layer["max_change"] for layer in figures["layers"]}


def held_of(figures):
    return [layer["name"] for layer in figures["layers"] if layer["held"]]


# --- data and network


def test_the_digits_are_split_into_fixed_parts_that_hold_every_digit():
    (images, labels), (held_images, held_labels) = load_digits()
    assert images.shape == (1437, 1, 8, 8)
    assert held_images.shape == (360, 1, 8, 8)
    assert (images.min(), images.max(), images.dtype) == (0.0, 1.0, np.float32)
    assert set(labels) == set(held_labels) == set(range(10))
    np.testing.assert_array_equal(held_images, load_digits()[1][0])


def test_the_two_parts_together_are_the_whole_set():
    """The counts and the sum are those of the set as scikit-learn ships it."""
    (images, labels), (held_images, held_labels) = load_digits()
    counts = np.bincount(labels) + np.bincount(held_labels)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert int((images.sum(dtype=float) + held_images.sum(dtype=float)) * 16) == 561718


def test_the_dataset_gives_batches_of_one_shape_and_every_held_out_image():
    (images, labels), held_out = load_digits()
    shapes = {x.shape for x, _ in digits_dataset(images, labels, 32, shuffle=True)}
    assert shapes == {(32, 1, 8, 8)}
    in_order = [y.asnumpy() for _, y in digits_dataset(*held_out, 100, shuffle=False)]
    np.testing.assert_array_equal(np.concatenate(in_order), held_out[1])


def test_the_network_is_that_of_the_original_experiment_with_a_head():
    net = DigitsNet()
    shapes = {p.name: p.shape for p in net.get_parameters()}
    assert list(shapes) == EVERY_WEIGHT
    assert shapes["conv1.weight"] == (6, 1, 4, 4)
    assert shapes["conv2.weight"] == (2, 6, 2, 2)
    assert shapes["conv3.weight"] == (6, 2, 2, 2)
    assert net(Tensor(np.zeros((3, 1, 8, 8), np.float32))).shape == (3, 10)


# --- configs


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_loads_and_is_named_after_its_file(path):
    assert load_config(str(path)).name == path.stem


def write(text):
    Path("c.yaml").write_text(text)
    return "c.yaml"


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        pytest.param("epoch_size=3", "epoch_size", 3, id="number"),
        pytest.param("freeze=10", "freeze", ["10"], id="layer-named-10"),
        pytest.param("freeze=[conv1, head]", "freeze", ["conv1", "head"], id="list"),
        pytest.param("stop_by_hand=true", "stop_by_hand", True, id="switch"),
        pytest.param(
            "optimizer.learning_rate=1e-3", "optimizer", Optimizer(learning_rate=0.001), id="nested"
        ),
    ],
)
def test_a_change_sets_one_key_and_leaves_the_others(change, key, value):
    changed = load_config(write(""), [change])
    assert asdict(changed) == asdict(Config()) | asdict(Config(**{key: value}))
    assert getattr(changed, key) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("freez: [conv1]", "key 'freez' in .* did you mean 'freeze'", id="misspelt"),
        pytest.param("learning_rate: 1", "key 'learning_rate' .* unknown", id="wrong-parent"),
        pytest.param(
            "optimizer: {learning_rat: 1}", "did you mean 'learning_rate'", id="misspelt-below"
        ),
        pytest.param("zzz: 1", "known are name, mode", id="nothing-near"),
        pytest.param("epoch_size: many", "epoch_size 'many' is not of type int", id="type"),
        pytest.param("epoch_size: true", "epoch_size True is not of type int", id="bool-is-no-int"),
        pytest.param("optimizer: 3", "optimizer 3 is not a mapping", id="no-mapping"),
        pytest.param("- a", "is not a mapping", id="list-at-the-top"),
        pytest.param("a: [", "is not YAML", id="broken"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_the_remedy(text, message):
    with pytest.raises(mg.PlanError, match=message):
        load_config(write(text))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param("epoch_size", "has no '='; write --set key=value", id="no-equals"),
        pytest.param("epoch_sise=3", "did you mean 'epoch_size'", id="misspelt"),
        pytest.param("stop=[a", "is not YAML", id="broken"),
        pytest.param("seed.x=1", "seed 1 is not a mapping", id="below-a-number"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_the_remedy(change, message):
    with pytest.raises(mg.PlanError, match=message):
        load_config(write("seed: 1"), [change])


def test_a_missing_config_is_named():
    with pytest.raises(mg.PlanError, match=r"config 'none\.yaml' cannot be read"):
        load_config("none.yaml")


def test_an_unknown_optimizer_names_the_nearest():
    with pytest.raises(mg.PlanError, match="did you mean 'Momentum'"):
        train.make_optimizer(Config(optimizer=Optimizer(name="Momentun")))


# --- runs


def test_the_baseline_reads_nine_of_ten_held_out_digits_and_every_weight_moves():
    output, figures, _ = run("digits_baseline", "epoch_size=4")
    assert figures["epochs"][-1]["accuracy"] > 0.9
    assert min(changes_of(figures).values()) > 0.01
    assert held_of(figures) == []
    assert "conv1.weight: moved, max change" in output


@pytest.mark.parametrize("name", ["digits_stop_conv1", "digits_freeze_conv1"])
def test_a_held_conv1_keeps_its_bits_and_all_others_move(name):
    output, figures, folder = run(name, "epoch_size=1")
    assert "conv1.weight: bits equal" in output
    assert held_of(figures) == ["conv1.weight"]
    changes = changes_of(figures)
    assert changes.pop("conv1.weight") == 0.0
    assert list(changes) == EVERY_WEIGHT[1:]
    assert min(changes.values()) > 0.01
    assert (folder / "layers.png").read_bytes().startswith(b"\x89PNG")


def test_a_stop_by_hand_lets_weight_decay_shrink_conv1_as_computed():
    """Without a gradient a step multiplies each weight by 1 - learning rate × weight decay."""
    _, figures, _ = run("digits_stop_by_hand", "epoch_size=1")
    net_weight = 0.24926521  # the largest of conv1 at seed 1
    expected = net_weight * (1 - (1 - 0.005 * 0.1) ** STEPS_PER_EPOCH)
    assert changes_of(figures)["conv1.weight"] == pytest.approx(expected, rel=1e-3)
    assert held_of(figures) == []


def test_the_resolved_config_of_a_run_starts_the_same_run():
    _, _, folder = run("digits_freeze_conv1", "epoch_size=1", "name=short", "seed=4")
    again = load_config(str(folder / "config.yaml"))
    assert (again.name, again.seed, again.freeze) == ("short", 4, ["conv1"])
    assert asdict(again) == yaml.safe_load((folder / "config.yaml").read_text())


# --- the command


def command(*arguments, path=ROOT):
    """Run train.py as a user does."""
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    program = [sys.executable, str(ROOT / "scripts" / "train.py"), *arguments]
    return subprocess.run(program, env=environment, capture_output=True, text=True)


def test_a_misspelt_key_on_the_command_line_is_one_line_and_exit_code_1():
    config = str(ROOT / "configs" / "digits_baseline.yaml")
    done = command("--config", config, "--set", "batchsize=8")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("train.py: key 'batchsize'")
    assert "did you mean 'batch_size'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_is_answered_by_the_install_line(tmp_path):
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(name='rich')")
    done = command("--config", "any.yaml", path=tmp_path)
    assert done.returncode == 1
    assert "train.py needs rich" in done.stderr
    assert "pip install -e '.[tools]'" in done.stderr
