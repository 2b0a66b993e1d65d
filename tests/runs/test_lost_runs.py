"""The ways to lose or to mix runs: each is refused, and leaves all bytes, or is whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import mindspore as ms
import pytest

import msgrad as mg
from msgrad.runs import _folder, _train, train
from tests.runs.small_runs import Killed, content, eager, killed_after, values


class Dead(BaseException):
    """Stands for SIGKILL: nothing is written any more, not even by what would clean up."""


WRITES = [(os, name) for name in ("replace", "rename", "unlink", "rmdir", "mkdir", "link")]
WRITES += [(shutil, "rmtree"), (ms, "save_checkpoint"), (Path, "write_text")]


def fail_at(monkeypatch, number, error):
    """Let the write of a number fail; a dead process does not write afterwards either."""
    count = 0

    def guarded(write):
        def call(*arguments, **keywords):
            nonlocal count
            count += 1
            if count == number or (count > number and isinstance(error, Dead)):
                raise error
            return write(*arguments, **keywords)

        return call

    for owner, name in WRITES:
        monkeypatch.setattr(owner, name, guarded(getattr(owner, name)))
    return lambda: count


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder of a run of two epochs, and its weights."""
    folder = tmp_path_factory.mktemp("ended")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = eager()
        train(run)
    return folder / "runs" / "c", values(run.net)


@pytest.fixture
def used(ended):
    """A copy of that folder, where a run of the same config would leave its files."""
    shutil.copytree(ended[0], "runs/c")
    return Path("runs/c")


# --- a start in a used folder

HOLDS = r"ckpt_save_dir '.*' holds a run already: .*--resume .* --set name=NAME .* by --overwrite"
FOREIGN = r"holds .*, which no run of msgrad left; give another by --set ckpt_save_dir=PATH"
STARTS = [
    pytest.param([], id="the-same-config"),
    pytest.param(["seed=2"], id="another-seed"),
    pytest.param(["name=d", "ckpt_save_dir=runs/c"], id="another-name"),
    pytest.param(["ckpt_save_dir=runs/../runs/c/"], id="another-way-to-write-it"),
    pytest.param(["ckpt_save_dir=link"], id="a-link"),
]


@pytest.mark.parametrize("changes", STARTS)
def test_a_start_in_a_used_folder_is_refused_with_three_ways_out(used, changes):
    Path("link").symlink_to("runs/c")
    before = content(used)
    with pytest.raises(mg.CheckpointError, match=HOLDS):
        train(eager(*changes))
    assert content(used) == before


PARTS = [["last"], [".last.old"], ["weights.ckpt"], ["figures.json"], ["c.mindir"], ["best.ckpt"]]


@pytest.mark.parametrize("left", PARTS, ids=[part[0] for part in PARTS])
def test_a_part_of_a_run_is_a_run(used, left):
    for path in used.iterdir():
        if path.name not in ("config.yaml", *left):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not (used / left[0]).exists():
        (used / left[0]).write_text("left")
    before = content(used)
    with pytest.raises(mg.CheckpointError, match=HOLDS):
        train(eager())
    assert content(used) == before


@pytest.mark.parametrize("name", ["config.yaml", "weights.ckpt", "figures.json"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["start", "overwrite"])
def test_a_file_that_no_run_left_is_never_written_over(name, overwrite):
    folder = Path("mine")
    folder.mkdir()
    (folder / name).write_text("seed: 1\n")
    with pytest.raises(mg.CheckpointError, match=FOREIGN):
        train(eager("ckpt_save_dir=mine"), overwrite=overwrite)
    assert content(folder) == {name: b"seed: 1\n"}


def test_overwrite_clears_what_would_mix_and_only_what_msgrad_wrote(used):
    (used / "notes.txt").write_text("mine")
    (used / "c.mindir").write_text("exported")
    (used / ".weights.ckpt.xyz").mkdir()
    run = eager("epoch_size=1", "seed=2")
    with pytest.raises(RuntimeError, match="stop"):
        train(run, overwrite=True, report=_stop)
    left = {path.partition("/")[0] for path in content(used)}
    assert left - {"best.ckpt"} == {"config.yaml", "last", "notes.txt"}
    assert "seed: 2" in (used / "config.yaml").read_text()


def _stop(_):
    raise RuntimeError("stop")


def test_overwrite_does_not_clear_the_weights_that_the_run_begins_with(used):
    before = content(used)
    run = eager("ckpt_path=runs/c/weights.ckpt")
    with pytest.raises(mg.CheckpointError, match=r"ckpt_path .* lies in the folder that overwrite"):
        train(run, overwrite=True)
    assert content(used) == before


def test_overwrite_of_what_is_not_there_is_a_start_and_beside_foreign_files_one_begins():
    Path("runs/c").mkdir(parents=True)
    Path("runs/c/notes.txt").write_text("mine")
    train(eager("epoch_size=1"), overwrite=True)
    assert Path("runs/c/notes.txt").read_text() == "mine"
    assert Path("runs/c/weights.ckpt").is_file()


def test_a_start_that_failed_before_its_first_save_may_begin_again(used):
    for name in ("last", "weights.ckpt", "figures.json", "best.ckpt"):
        path = used / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    train(eager("epoch_size=1", "seed=3"))
    assert "seed: 3" in (used / "config.yaml").read_text()


# --- going on

RESUMES = [
    pytest.param(["epoch_size=3", "seed=2"], r"saved with seed 1, and the config has 2; give --set "
                 "seed=1", id="another-seed"),
    pytest.param(["epoch_size=3", "batch_size=6"], "saved with batch_size 8, and the config has 6",
                 id="another-batch-size"),
    pytest.param(["epoch_size=3", "optimizer.learning_rate=0.2"], "brings its own rates",
                 id="another-rate"),
    pytest.param(["epoch_size=3", "plan=[]"], "under another plan", id="another-plan"),
    pytest.param(["epoch_size=3", "ckpt_save_dir=runs/B"],
                 "goes on where it lies, and ckpt_save_dir is 'runs/B'; drop one",
                 id="another-folder"),
    pytest.param([], "is at the end, epoch 2 of 2", id="at-its-end"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), RESUMES)
def test_what_would_not_go_on_as_it_was_is_refused(used, changes, message):
    before = content("runs")
    with pytest.raises(mg.MsgradError, match=message):
        train(eager(*changes), resume="runs/c")
    assert content("runs") == before


def test_resume_and_overwrite_together_are_refused(used):
    before = content(used)
    with pytest.raises(mg.ArgumentError, match="goes on with what overwrite clears; give one"):
        train(eager("epoch_size=3"), resume="runs/c", overwrite=True)
    assert content(used) == before


def test_other_data_are_not_gone_on_with(used, monkeypatch):
    run = eager("epoch_size=3")
    before = content(used)
    datasets = run.task.module.datasets
    monkeypatch.setattr(
        run.task.module, "datasets", lambda c: (datasets(c)[0].take(2), datasets(c)[1])
    )
    message = "did 6 steps in 2 epochs, and the data give 2 in each; give the same data"
    with pytest.raises(mg.CheckpointError, match=message):
        train(run, resume="runs/c")
    assert content(used) == before


@pytest.mark.parametrize("named", ["runs/A", "runs/A/last", "runs/A/"])
def test_a_run_goes_on_where_it_lies_and_the_folder_of_the_config_keeps_its_run(used, named):
    """Made with another ckpt_save_dir on the command line, and resumed without it."""
    with pytest.raises(Killed, match="after epoch"):
        train(eager("ckpt_save_dir=runs/A"), report=killed_after(1))
    before = content(used)
    run = eager()
    figures = train(run, resume=named)
    assert content(used) == before
    assert [epoch.epoch for epoch in figures.epochs] == [2]
    assert run.config.save_dir == Path("runs/A")
    assert {"weights.ckpt", "figures.json"} <= {p.name for p in Path("runs/A").iterdir()}


def test_a_folder_in_the_file_of_the_config_is_not_where_another_run_goes_on(used, caplog):
    text = "ckpt_save_dir: runs/c\n"
    with pytest.raises(Killed, match="after epoch"):
        train(eager("ckpt_save_dir=runs/A", text=text), report=killed_after(1))
    before = content(used)
    train(eager(text=text), resume="runs/A")
    assert content(used) == before
    assert "the run goes on in runs/A, not in ckpt_save_dir runs/c" in caplog.text


def test_what_takes_effect_from_here_on_is_named(used, caplog):
    train(eager("epoch_size=3", "clip_norm=2.0"), resume="runs/c")
    told = "runs/c goes on under another config: clip_norm was None and is 2.0"
    assert told in [record.message for record in caplog.records]


# --- two processes


def test_a_second_process_in_the_same_folder_is_refused_and_a_dead_one_leaves_no_lock(used):
    """The first is killed by SIGKILL, which no program can answer."""
    program = textwrap.dedent(
        """
        import fcntl, os, time
        file = open("runs/c/.lock", "a+")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid())); file.flush()
        print("locked", flush=True)
        time.sleep(60)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        message = f"ckpt_save_dir 'runs/c' is in use: process {other.pid} trains in it; wait"
        for resume, overwrite in ((None, False), ("runs/c", False), (None, True)):
            with pytest.raises(mg.CheckpointError, match=message):
                train(eager("epoch_size=3"), resume=resume, overwrite=overwrite)
        other.kill()
    assert (used / ".lock").exists()
    train(eager("epoch_size=3"), resume="runs/c")
    assert not (used / ".lock").exists()


def test_a_run_holds_its_folder_while_it_trains():
    def second(_):
        with (
            pytest.raises(mg.CheckpointError, match=f"is in use: process {os.getpid()} trains"),
            _folder.locked(Path("runs/c")),
        ):
            raise AssertionError

    train(eager("epoch_size=1"), report=second)
    with _folder.locked(Path("runs/c")):
        pass


# --- what cannot be written


def test_a_folder_that_is_a_file_or_cannot_be_written_is_named_before_the_first_step(monkeypatch):
    Path("runs").write_text("a file")
    with pytest.raises(mg.CheckpointError, match=r"'runs/c' cannot be written: .*dir"):
        train(eager())

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_folder, "_locked", refuse)
    run = eager("ckpt_save_dir=d/e")
    with pytest.raises(mg.CheckpointError, match="'d/e' cannot be written: Permission denied"):
        train(run)
    assert run.steps["train"].position.step == 0


class Trained:
    """One run without arithmetic: each epoch adds 1 to a bias and counts its steps."""

    def __init__(self, monkeypatch):
        self.run = eager(text="")
        self.step = self.run.steps["train"]
        self.step.prepare()
        self.step.save("start.ckpt")
        monkeypatch.setattr(_train, "_by_model", self._epochs)

    def _epochs(self, run, batches, position, log):
        bias = run.net.head.bias
        for epoch in range(position.epoch, run.config.epoch_size):
            log.start()
            log.note("train", bias.sum())
            ms.ops.assign(bias, bias + 1)
            self.step.count_steps(batches.get_dataset_size())
            self.step.set_epoch(epoch + 1)
            log.finish(epoch + 1, self.step.position.step)

    def start(self, **options):
        """Train from the beginning, or from a save, and return the bias."""
        self.step.load("start.ckpt")
        train(self.run, **options)
        return self.run.net.head.bias.asnumpy().tolist()


ERRORS = [
    pytest.param(lambda: Dead(), id="killed"),
    pytest.param(lambda: OSError(errno.ENOSPC, "No space left on device"), id="disk-full"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_a_run_that_ends_at_any_write_is_whole(monkeypatch, error):
    """It goes on to the end of one that was never stopped, from its save or from its beginning."""
    trained, folder = Trained(monkeypatch), Path("runs/c")
    whole = trained.start()
    assert set(content(folder)) >= {"last/train.ckpt", "weights.ckpt", "figures.json"}
    number, written, ways = 0, 0, set()
    while number <= written:
        number += 1
        shutil.rmtree("runs", ignore_errors=True)
        with monkeypatch.context() as patch, suppress(Dead, mg.MsgradError, OSError):
            count = fail_at(patch, number, error())
            trained.start()
        written = count()
        saved = [path for path in (folder / "last", folder / ".last.old") if path.exists()]
        if saved and json.loads(_meta(saved[0]))["position"][1] == 2:
            ways.add("at its end")
            with pytest.raises(mg.PlanError, match="is at the end, epoch 2 of 2"):
                trained.start(resume=folder)
        else:
            ways.add("resumed" if saved else "begun anew")
            assert trained.start(resume=folder if saved else None) == whole
    assert ways == {"begun anew", "resumed", "at its end"}
    assert number > 25


def _meta(folder):
    values = ms.load_checkpoint(str(folder / "train.ckpt"))
    return values["msgrad.meta"].asnumpy().tobytes().decode()


def test_clearing_that_ends_at_any_write_leaves_a_run_or_none(monkeypatch, used):
    """What is left is refused again, or cleared by another --overwrite; it is of one run."""
    shutil.copytree(used, "copy")
    number, written = 0, 0
    while number <= written:
        number += 1
        shutil.rmtree("runs/c")
        shutil.copytree("copy", "runs/c")
        with monkeypatch.context() as patch, suppress(Dead):
            count = fail_at(patch, number, Dead())
            _folder.make_room(used, overwrite=True)
        written = count()
        assert content(used).items() <= content("copy").items()
        if content(used):
            assert (used / "config.yaml").exists()
    assert number > 3
    assert not content(used)
