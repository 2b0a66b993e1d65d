"""The digits, and the scripts that train, evaluate, audit and export."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import audit as auditing
import compare
import eval as evaluating
import export as exporting
import train
from digits import DigitsNet, digits_dataset, load_digits

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
FREEZE = str(ROOT / "configs" / "digits_freeze_conv1.yaml")
SHORT = ["--set", "epoch_size=1", "batch_size=479", "device_target=CPU"]
EVERY_WEIGHT = [
    "conv1.weight",
    "conv2.weight",
    "conv2.bias",
    "conv3.weight",
    "conv3.bias",
    "head.weight",
    "head.bias",
]


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


# --- train.py


def started(monkeypatch, module, *arguments):
    """Run the main of a script in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return ended.value.code


def test_train_shows_kernels_and_that_a_held_conv1_kept_its_bits(monkeypatch, capsys):
    arguments = ["--config", FREEZE, *SHORT, "--show", "conv1"]
    assert started(monkeypatch, train, *arguments) == 0
    output = capsys.readouterr().out
    ms.set_seed(1)
    first = DigitsNet().conv1.weight.asnumpy()[0, 0, 0]
    row = " ".join(f"{value:7.4f}" for value in first)
    # before and after
    assert output.count(row) == 2
    assert "conv1.weight: bits equal, all 96 values as before the run" in output
    assert "held: 1 of 1 kept their bits" in output
    folder = Path("runs/digits_freeze_conv1")
    assert (folder / "layers.png").read_bytes().startswith(b"\x89PNG")
    figures = json.loads((folder / "figures.json").read_text())
    assert [layer["name"] for layer in figures["layers"]] == EVERY_WEIGHT
    assert [layer["held"] for layer in figures["layers"]] == [True] + [False] * 6


def test_compare_puts_runs_side_by_side(monkeypatch, capsys):
    for name, held, change in (("a", True, 0.0), ("b", False, 0.25)):
        Path("runs", name).mkdir(parents=True)
        layer = {"name": "conv1.weight", "held": held, "max_change": change}
        layers = [{**layer, "bits_changed": int(change > 0)}]
        content = {"layers": layers, "epochs": [{"accuracy": 0.5}, {"accuracy": 0.95}]}
        Path("runs", name, "figures.json").write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["compare.py", "a", "b"])
    compare.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["a", "held,", "bits", "equal", "0", "0.950"] in rows
    assert ["b", "moved", "0.25", "0.950"] in rows


# --- the commands


def command(script, *arguments, path=ROOT):
    """Run a script as a user does."""
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}", "GLOG_v": "3"}
    program = [sys.executable, str(SCRIPTS / script), *arguments]
    return subprocess.run(program, env=environment, capture_output=True, text=True)


def test_a_misspelt_key_on_the_command_line_is_one_line_and_exit_code_1():
    done = command("train.py", "--config", FREEZE, "--set", "batchsize=8")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "train.py: --set batchsize=8: key 'batchsize' of the file is unknown; did you mean "
        "'batch_size'?\n"
    )


def test_a_missing_extra_is_answered_by_the_install_line(tmp_path):
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(name='rich')")
    done = command("train.py", "--config", "any.yaml", path=tmp_path)
    assert done.returncode == 1
    assert "train.py needs rich" in done.stderr
    assert "pip install -e '.[tools]'" in done.stderr


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A checkpoint of a digits network whose head answers 3 to every image."""
    net = DigitsNet()
    net.head.weight.set_data(Tensor(np.zeros((10, 54), np.float32)))
    net.head.bias.set_data(Tensor(np.eye(10, dtype=np.float32)[3]))
    path = tmp_path_factory.mktemp("weights") / "three.ckpt"
    ms.save_checkpoint(net, str(path))
    return str(path)


def test_eval_reads_weights_and_prints_the_figures_of_the_task(monkeypatch, capsys, weights):
    arguments = ["--config", FREEZE, "--ckpt_path", weights, *SHORT]
    labels = load_digits()[1][1]
    share = np.mean(labels == 3)
    monkeypatch.setattr(sys, "argv", ["eval.py", *arguments, "--json"])
    evaluating.main()
    assert json.loads(capsys.readouterr().out) == {"accuracy": pytest.approx(share)}


@pytest.mark.parametrize(
    ("given", "changes", "expected"),
    [
        pytest.param(None, [], "runs/digits_transfer/weights.ckpt", id="its-own-run"),
        pytest.param("{here}", [], "{here}", id="named"),
        pytest.param(None, ["ckpt_path={here}"], "{here}", id="set"),
    ],
)
def test_the_base_that_a_config_names_is_not_taken_for_what_its_run_left(
    tmp_path, given, changes, expected
):
    own = tmp_path / "runs" / "digits_transfer" / "weights.ckpt"
    own.parent.mkdir(parents=True)
    here = tmp_path / "here.ckpt"
    for path in (own, here):
        path.touch()
    arguments = argparse.Namespace(
        config=str(ROOT / "configs" / "digits_transfer.yaml"),
        ckpt_path=given and given.format(here=here),
        set=[change.format(here=here) for change in changes],
    )
    assert evaluating.read(arguments).ckpt_path == expected.format(here=here)


@pytest.mark.parametrize("script", [evaluating, exporting], ids=["eval", "export"])
def test_weights_that_are_not_there_are_named(monkeypatch, script):
    message = started(monkeypatch, script, "--config", FREEZE, *SHORT)
    assert str(message).startswith(f"{Path(script.__file__).name}: --set ckpt_path=")
    assert "ckpt_path 'runs/digits_freeze_conv1/weights.ckpt' is no file" in str(message)


def test_export_writes_a_mindir_that_answers_as_the_network(monkeypatch, capsys, weights):
    arguments = ["--config", FREEZE, "--ckpt_path", weights, "--file_name", "d/net"]
    changes = ["--set", "batch_size=2", "device_target=CPU"]
    monkeypatch.setattr(sys, "argv", ["export.py", *arguments, *changes])
    exporting.main()
    assert capsys.readouterr().out == "wrote d/net.mindir, for inputs of (2, 1, 8, 8)\n"
    graph = nn.GraphCell(ms.load("d/net.mindir"))
    scores = graph(Tensor(np.zeros((2, 1, 8, 8), np.float32))).asnumpy()
    np.testing.assert_array_equal(scores, np.eye(10, dtype=np.float32)[[3, 3]])


def test_audit_is_the_command_of_that_name(monkeypatch, capsys):
    changes = ["--set", "epoch_sise=1", "--json", "--html", "a.html"]
    assert started(monkeypatch, auditing, "--config", FREEZE, *changes) == 2
    assert "did you mean 'epoch_size'?" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["train.py", "eval.py", "audit.py", "export.py"])
def test_a_script_is_short_and_says_how_it_is_called(script):
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    assert text.count("\n") < 150
    assert f"\npython scripts/{script} --config configs/" in text
