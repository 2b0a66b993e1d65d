"""Ranks: two processes train as one, go on together after a kill, or are refused together."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, communication, nn, ops

import msgrad as mg
from msgrad.backend import _ranks
from msgrad.training import _rank_check
from tests.backend.ranks_program import CHANGE, RANKS, STEPS, batch, make_net, make_step

HERE = Path(__file__).resolve().parent
# All ranks compile at once, on a machine that may do other things; a rank that waits gives up then.
PATIENCE = 15


# --- two processes, three launches: whole, killed, resumed


def launch(part: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a part of the program on two ranks through msrun, which starts the `python` of PATH."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    python = programs / "python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(HERE.parents[1]),
        "MS_NODE_TIMEOUT": str(PATIENCE),
        "GLOG_v": "3",
    }
    msrun = "import sys; from mindspore.parallel.cluster.run import main; sys.exit(main())"
    logs = f"--log_dir={folder / part}"
    ranks = [f"--worker_num={RANKS}", f"--local_worker_num={RANKS}", f"--master_port={port}"]
    program = [str(HERE / "ranks_program.py"), part, str(folder)]
    return subprocess.Popen(
        [sys.executable, "-c", msrun, *ranks, "--join=True", logs, *program],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(part: str, folder: Path) -> None:
    if launch(part, folder).wait(timeout=120):
        logs = sorted((folder / part).glob("*.log"))
        raise AssertionError("\n".join(path.read_text()[-3000:] for path in logs))


def kill_past_the_save(folder: Path) -> list[int]:
    """Kill the processes of a run by their ids, once both ranks are past a save; return the ids."""
    run = launch("killed", folder)
    marks = [folder / f"past_the_save.{rank}.json" for rank in range(RANKS)]
    until = time.monotonic() + 120
    while not all(mark.exists() for mark in marks):
        assert time.monotonic() < until
        assert run.poll() is None
        time.sleep(0.1)
    pids = [json.loads(path.read_text()) for path in folder.glob("killed.*.pid")]
    for pid in [*pids, run.pid]:
        os.kill(pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    return pids


class Launched:
    """What the three launches wrote."""

    def __init__(self, folder: Path, killed: list[int]) -> None:
        self.folder, self.killed = folder, killed
        self.cases = [self.read(f"cases.{rank}.json") for rank in range(RANKS)]

    def read(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text())

    def weights(self, name: str, rank: int) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{name}.{rank}.npz") as file:
            return dict(file)

    def told(self, case: str) -> list[list[str]]:
        """The error and the message of each rank in a case that refuses once."""
        return [self.cases[rank][case]["told"][0] for rank in range(RANKS)]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """All launches, once: workers of pytest-xdist that share this module wait for the first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    folder.mkdir(exist_ok=True)
    done = folder / "killed.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            with ThreadPoolExecutor() as pool:
                whole = pool.submit(finish, "whole", folder)
                killed = kill_past_the_save(folder)
                finish("resumed", folder)
                whole.result()
            done.write_text(json.dumps(killed))
    return Launched(folder, json.loads(done.read_text()))


def joined_run() -> dict[str, np.ndarray]:
    """The same run by hand in NumPy, float64, on the joined batch: what one process would do."""
    net = make_net()
    w = {p.name: p.asnumpy().astype(np.float64) for p in net.get_parameters()}
    velocity = {name: np.zeros_like(value) for name, value in w.items()}
    norm = w["1.gamma"] / np.sqrt(w["1.moving_variance"] + 1e-5)
    for number in range(STEPS):
        x, y = (part.astype(np.float64) for part in batch(number))
        a = x @ w["0.weight"].T + w["0.bias"]
        h = np.tanh((a - w["1.moving_mean"]) * norm + w["1.beta"])
        k = np.tanh(h @ w["3.weight"].T + w["3.bias"])
        d_out = 2 * (k @ w["5.weight"].T + w["5.bias"] - y) / y.size
        d_k = d_out @ w["5.weight"] * (1 - k**2)
        d_a = d_k @ w["3.weight"] * (1 - h**2) * norm
        grads = {"5.weight": d_out.T @ k, "5.bias": d_out.sum(0)}
        grads |= {"3.weight": d_k.T @ h, "3.bias": d_k.sum(0)}
        if number >= CHANGE:
            grads |= {"0.weight": d_a.T @ x, "0.bias": d_a.sum(0)}
        for name, grad in grads.items():
            velocity[name] = 0.9 * velocity[name] + grad + 0.01 * w[name]
            w[name] = w[name] - 0.1 * velocity[name]
    return w


@pytest.mark.slow
@pytest.mark.parametrize("run", ["whole", "resumed", "pynative"])
def test_both_ranks_have_equal_bits_and_equal_one_process_on_the_joined_batch(launched, run):
    """To 1e-6 of the largest weight, 1: float32 and another order of the sums."""
    first, second = (launched.weights(run, rank) for rank in range(RANKS))
    assert list(first) == list(second)
    assert [name for name in first if first[name].tobytes() != second[name].tobytes()] == []
    start = {p.name: p.asnumpy() for p in make_net().get_parameters()}
    for name, expected in joined_run().items():
        np.testing.assert_allclose(first[name], expected, rtol=0, atol=1e-6, err_msg=name)
    same = [name for name in start if start[name].tobytes() == first[name].tobytes()]
    assert same == ["1.moving_mean", "1.moving_variance", "1.gamma", "1.beta"]


@pytest.mark.slow
def test_a_killed_run_goes_on_from_what_rank_0_saved(launched):
    """The scheduler and both ranks were killed; optimizer state too is that of the whole run."""
    assert len(launched.killed) == RANKS + 1
    assert (launched.folder / "rank0" / "run.ckpt").is_file()
    assert not (launched.folder / "rank1").exists()
    whole, resumed = (launched.weights(run, 0) for run in ("whole", "resumed"))
    assert list(whole) == list(resumed)
    assert sum(name.startswith("moments.") for name in whole) == 6
    for name, value in whole.items():
        # the CPU's last bits differ between the early launches of a graph
        np.testing.assert_allclose(resumed[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(RANKS))
def test_the_gradients_reduced_are_those_of_what_the_stage_trains(launched, rank):
    """Counted in the graph that MindSpore compiled for each stage; 4 bytes a number."""
    shapes = {p.name: list(p.shape) for p in make_net().get_parameters()}
    report = launched.read(f"whole.{rank}.json")
    head = ["3.weight", "3.bias", "5.weight", "5.bias"]
    assert report["stages"] == [head, ["0.weight", "0.bias", *head]]
    expected = [sorted(shapes[name] for name in stage) for stage in report["stages"]]
    assert [sorted(stage) for stage in report["reduced"]] == expected
    reduced = [4 * sum(int(np.prod(shape)) for shape in stage) for stage in report["reduced"]]
    assert reduced == [4 * (30 + 5 + 10 + 2), 4 * (24 + 6 + 30 + 5 + 10 + 2)]
    assert len(launched.read(f"resumed.{rank}.json")["reduced"][0]) == 6


@pytest.mark.slow
def test_use_device_joins_the_ranks_in_graph_mode_and_averages(launched):
    expected = {"ranks": RANKS, "graph": True, "parallel_mode": "data_parallel"}
    expected |= {"gradients_mean": True, "only_trainable_params": False}
    for rank in range(RANKS):
        device = launched.read(f"device.{rank}.json")
        assert {key: device[key] for key in expected} == expected


REFUSED = [
    pytest.param(
        "masks",
        r"differ in what they train; freeze the same on every rank before the step\n"
        r"rank 0: trains 3\.weight, 3\.bias\nrank 1: in evaluation 3$",
        id="another-mask",
    ),
    pytest.param(
        "masks_later",
        r"rank 0: trains 3\.weight, 3\.bias; in evaluation 5\n"
        r"rank 1: trains 5\.weight, 5\.bias; in evaluation 3$",
        id="another-mask-at-a-later-stage",
    ),
    pytest.param(
        "stops",
        r"stop and scale the same .*\nrank 0: nothing .*\nrank 1: stops 3 .*StopGradient input$",
        id="another-stop",
    ),
    pytest.param(
        "behaviour", r"call set_train on all .*\nrank 0: nothing .*\nrank 1: in evaluation the net"
        r"work, 0, 1, 2, 3 and 2 more$", id="another-behaviour",
    ),
    pytest.param(
        "weights", r"set the same seed .*\nrank 0: weights 0\.weight \w{8}, 0\.bias .*\n"
        r"rank 1: weights 0\.weight \w{8}, 0\.bias ", id="other-weights",
    ),
    pytest.param(
        "holds", r"hold the same .*\nrank 0: nothing .*\nrank 1: holds 3\.weight, 5\.weight rows "
        r"\[1\]$", id="another-hold",
    ),
    pytest.param(
        "holds_later", r"hold the same .*\nrank 0: nothing .*\nrank 1: holds 3\.weight$",
        id="another-hold-within-a-stage",
    ),
    pytest.param(
        "factors", r"give the same scale .*\nrank 0: factors 3 0\.5\nrank 1: factors 3 1\.5$",
        id="another-factor",
    ),
    pytest.param(
        "rates", r"make the same optimizer .*\nrank 0: rates 0\.weight 0\.1.*\n"
        r"rank 1: rates 0\.weight 0\.2", id="another-rate",
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("case", "message"), REFUSED)
def test_ranks_that_differ_are_refused_on_both(launched, case, message):
    first, second = launched.told(case)
    assert first == second
    assert first[0] == "ConflictError"
    assert first[1].startswith("ranks 0 and 1 differ in what they ")
    assert re.search(message, first[1])


@pytest.mark.slow
def test_a_refusal_changes_nothing_and_the_mended_ranks_train_together(launched):
    reports = [launched.cases[rank]["masks"] for rank in range(RANKS)]
    trained = ["0.weight", "0.bias", "3.weight", "3.bias", "5.weight", "5.bias"]
    for report in reports:
        assert report["told"][0] == report["told"][1]
        assert report["moved by it"] == []
        assert report["moved after"] == trained
        assert report["stages"] == [trained]
    assert reports[0]["bits"] == reports[1]["bits"]
    assert [launched.cases[rank]["masks_later"]["moved by it"] for rank in range(RANKS)] == [[], []]


@pytest.mark.slow
def test_what_one_rank_refuses_at_the_start_all_refuse(launched):
    first, second = launched.told("nothing_left")
    assert first[0] == "ConflictError"
    assert re.search(r"^rank 1 refuses, so all ranks do: nothing is left to train", first[1])
    assert second[0] == "NothingLeftError"
    assert re.search(r"^nothing is left to train of 8 parameters", second[1])


@pytest.mark.slow
def test_rank_0_alone_writes_and_every_rank_loads(launched):
    first, second = (launched.cases[rank]["only_rank_0_saves"] for rank in range(RANKS))
    assert (first["written"], second["written"]) == (True, False)
    assert (first["position"], second["position"]) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "messages"),
    [
        pytest.param(
            "missing_file",
            (r"^rank 1 refuses, so all ranks do: path .*none\.ckpt' is no file",
             r"^path .*none\.ckpt' is no file"), id="missing-on-one",
        ),
        pytest.param(
            "other_file",
            (r"differ in the save; load the same save .*\nrank 0: step 1; file \w{16}\n"
             r"rank 1: step 0; file \w{16}$",) * 2, id="another-on-one",
        ),
    ],
)  # fmt: skip
def test_a_save_that_one_rank_cannot_load_is_loaded_by_none(launched, case, messages):
    for rank, message in enumerate(messages):
        ((kind, text),) = launched.cases[rank][case]["told"]
        assert kind == "CheckpointError"
        assert re.search(message, text)
        assert launched.cases[rank][case]["moved by it"] == []


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(RANKS))
def test_a_train_cell_that_reduces_no_gradient_is_named(launched, rank):
    (warning,) = launched.cases[rank]["no_reducer"]["warnings"]
    assert re.search(r"^train cell WithoutReducer holds no .*each of 2 ranks trains by it", warning)


@pytest.mark.slow
@pytest.mark.parametrize("rank", range(RANKS))
def test_statistics_that_differ_when_they_are_frozen_are_named(launched, rank):
    """They are each rank's own while the norm trains; the weights are equal all the same."""
    assert launched.cases[0]["norms"]["bits"] == launched.cases[1]["norms"]["bits"]
    (warning,) = launched.cases[rank]["norms"]["warnings"]
    assert warning.startswith("norm statistics that are held now differ between the ranks, each")


@pytest.mark.slow
def test_a_rank_that_alone_changes_its_stage_says_so(launched):
    first, second = launched.told("out_of_step")
    assert first[0] == "DeviceError"
    assert re.search("^rank 0 waits for .* rank 1 is doing something else; change the", first[1])
    assert second[0] == "RuntimeError"


# --- without other processes


class Others:
    """Stands for a group of ranks; the others answer as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = {"parallel_mode": "data_parallel", "parameter_broadcast": False}
        self.settings |= {"enable_parallel_optimizer": False}
        self.size, self.rank = 2, 0
        monkeypatch.setattr(communication.GlobalComm, "INITED", True)
        monkeypatch.setattr(communication, "get_group_size", lambda: self.size)
        monkeypatch.setattr(communication, "get_rank", lambda: self.rank)
        monkeypatch.setattr(ms, "get_auto_parallel_context", self.settings.get)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    return Others(monkeypatch)


def no_gather() -> None:
    raise AssertionError("asked the other ranks")


def test_one_process_asks_nobody_and_saves_and_loads(monkeypatch, tmp_path):
    monkeypatch.setattr(communication, "get_group_size", no_gather)
    monkeypatch.setattr(communication, "get_rank", no_gather)
    monkeypatch.setattr(ops, "AllGather", no_gather)
    step = make_step(make_net())
    step(*map(Tensor, batch(0)))
    step.save(tmp_path / "run.ckpt")
    assert step.load(tmp_path / "run.ckpt").step == 1


def test_after_a_load_the_ranks_compare_anew(monkeypatch, tmp_path):
    step = make_step(make_net())
    step.save(tmp_path / "run.ckpt")
    forgotten = []
    monkeypatch.setattr(_rank_check.RankCheck, "forget", lambda self: forgotten.append(self))
    step.load(tmp_path / "run.ckpt")
    assert forgotten == [step._rank_check]


def test_ranks_are_compared_where_the_stage_changes_and_not_at_each_step(others, monkeypatch):
    asked = []
    monkeypatch.setattr(_rank_check, "compare", lambda what, facts, error: asked.append(facts))
    net = nn.SequentialCell(nn.Dense(4, 3), nn.Dense(3, 2))
    # a reducer would look for the others
    monkeypatch.setattr(_rank_check, "_reduces", lambda cell: True)
    agreement, optimizer = _rank_check.RankCheck(net), nn.SGD(net.trainable_params(), 0.5)
    for names, step in [(["a"], 0), (["a"], 1), (["a", "b"], 2), (["a"], 3), (["a"], 4)]:
        agreement.compare(names, optimizer, net, (step, 0))
    assert [(facts["trains"], facts["step"]) for facts in asked] == [
        (["a"], ["0"]), (["a", "b"], ["2"]), (["a"], ["3"])
    ]  # fmt: skip
    # the bits of the weights at the start only, and after a load
    assert [len(facts["weights"]) for facts in asked] == [4, 0, 0]
    agreement.forget()
    agreement.compare(["a"], optimizer, net, (4, 0))
    assert len(asked[-1]["weights"]) == 4
    assert asked[-1]["rates"][0] == "0.weight 0.5"


def test_holds_and_rates_are_compared_now_and_then_within_a_stage(others, monkeypatch):
    asked = []
    net = nn.SequentialCell(nn.Dense(4, 3), nn.Dense(3, 2))
    optimizer = nn.SGD(net.trainable_params(), 0.5)
    monkeypatch.setattr(_rank_check, "compare", lambda what, facts, error: asked.append(facts))
    for step in range(301):
        _rank_check.RankCheck(net).compare_within(optimizer, net, step)
    assert [int(facts["step"][0]) for facts in asked] == [*range(10, 101, 10), 200, 300]
    assert asked[0]["rates"][0] == "0.weight 0.5"


@pytest.mark.parametrize(
    ("setting", "count"),
    [
        pytest.param({"parallel_mode": "data_parallel"}, 2, id="data-parallel"),
        pytest.param({"parallel_mode": "semi_auto_parallel"}, 2, id="semi-auto"),
        pytest.param({"parallel_mode": "stand_alone"}, 1, id="each-for-itself"),
    ],
)
def test_only_ranks_of_a_parallel_mode_train_together(others, setting, count):
    others.settings |= setting
    assert _ranks.ranks_together() == count


def test_in_a_dry_run_no_other_rank_is_asked(others, monkeypatch):
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "1")
    assert _ranks.ranks_together() == 1


def test_processes_that_joined_and_train_alone_are_named_once(others, caplog):
    others.settings["parallel_mode"] = "stand_alone"
    step = make_step(make_net())
    for number in range(2):
        step(*map(Tensor, batch(number)))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert re.search(
        r"^2 processes have joined, and parallel_mode 'stand_alone' .* use_device\(distributed=Tru",
        record.getMessage(),
    )


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        pytest.param({"parallel_mode": "semi_auto_parallel"}, "parallel_mode 'semi_auto_parallel'",
                     id="semi-auto"),
        pytest.param({"enable_parallel_optimizer": True}, "enable_parallel_optimizer",
                     id="parallel-optimizer"),
    ],
)  # fmt: skip
def test_a_save_that_would_hold_a_part_only_is_refused(others, setting, why):
    step = make_step(make_net())
    others.settings |= setting
    with pytest.raises(mg.CheckpointError, match=f"^{why} may leave each rank a part .*; save wit"):
        step.save("run.ckpt")
    assert not Path("run.ckpt").exists()


def gathered(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Let an answer stand beside what this rank gives."""

    def gather(given: Tensor) -> Tensor:
        return Tensor(np.concatenate([given.asnumpy(), answer(given.asnumpy())]))

    monkeypatch.setattr(ops, "AllGather", lambda: gather)


def failing(given: np.ndarray) -> np.ndarray:
    raise RuntimeError("Launch kernel failed")


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        pytest.param(np.zeros_like, "rank 1 is doing something else", id="gradients"),
        pytest.param(failing, "no answer came", id="nothing"),
    ],
)
def test_a_rank_that_hears_no_answer_raises(others, monkeypatch, answer, fact):
    gathered(monkeypatch, answer)
    step = make_step(make_net())
    with pytest.raises(mg.DeviceError, match=f"rank 0 waits .* {fact}; change the stage at the sa"):
        _rank_check.RankCheck(make_net()).compare(["a"], step.optimizer, step.inner, (0, 0))


def test_the_first_rank_that_differs_is_named_and_long_lists_are_cut():
    many = [f"layer{number}" for number in range(7)]
    own: dict[str, list[str]] = {"asks about": ["what they train"], "trains": ["head", *many]}
    text = _ranks._difference([own, own, {**own, "trains": ["head"]}, {**own, "trains": []}])
    assert text == (
        "ranks 0 and 2 differ in what they train; freeze the same on every rank before the step\n"
        "rank 0: trains layer0, layer1, layer2, layer3, layer4 and 2 more\n"
        "rank 2: nothing that the other does not have"
    )


def test_the_same_in_another_order_is_a_difference_too():
    own = {"asks about": ["what they train"], "trains": ["a", "b"]}
    text = _ranks._difference([own, {**own, "trains": ["b", "a"]}])
    assert text.endswith("rank 0: trains a, b\nrank 1: trains b, a")


def test_a_rank_that_asks_about_something_else_is_told_apart():
    own = {"asks about": ["what they train"], "trains": ["a"]}
    text = _ranks._difference([own, {"asks about": ["the save"]}])
    assert text.startswith("ranks 0 and 1 differ in what they train; load, and change the stage, a")
    assert text.endswith(
        "rank 0: asks about what they train; trains a\nrank 1: asks about the save"
    )
