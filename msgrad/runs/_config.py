"""The config of a run: one YAML file with the keys of the run and those of its plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from mindspore import communication

from msgrad._extras import needed
from msgrad._files import plain, write_text
from msgrad.errors import PlanError, Problem
from msgrad.plans import Checker, Document, Kind, Plan, Until, read_document
from msgrad.runs._faults import look_further
from msgrad.runs._folder import WEIGHTS
from msgrad.runs._keys import OptimizerKeys, StepKeys, read_run_keys
from msgrad.runs._optimizers import optimizer_keywords
from msgrad.runs._override import override


@dataclass(frozen=True)
class Config:
    """One run, in the words of MindSpore's own scripts.

    Attributes:
        task: The Python file, seen from the folder of the config, or module that gives network,
            loss and data.
        plan: Which weights may change: the keys ``plan``, ``stages``, ``updates``, ``audit``.
        name: What the run is called; the name of the file by default.
        mode: ``graph`` or ``pynative``.
        device_target: ``Ascend``, ``CPU``, or ``auto``: an Ascend where one can be used.
        device_id: Number of the Ascend device; None lets MindSpore choose.
        distribute: Whether to train with the other processes of ``msrun``; ``auto`` does so where
            there are some.
        data_dir: Folder of the data, where the task reads one.
        epoch_size: Epochs to train.
        batch_size: Rows in a batch.
        ckpt_path: Weights to begin with.
        ckpt_save_dir: Folder for what the run leaves, ``runs/<name>`` by default.
        dataset_sink_mode: Whether an Ascend fetches the batches itself; the CPU cannot.
        seed: Seed of weights, dropout and shuffling.
        jit_level: ``O0`` or ``O1``; None leaves MindSpore's default.
        clip_norm: Largest global norm of the gradients.
        clip_value: Largest size of an element of a gradient.
        accumulate: Number of batches whose mean gradient makes one update.
        unreached: What to do with weights that no gradient reaches, see `TrainStep`.
        has_aux: Whether the loss comes with more, of which no gradient is taken, see `TrainStep`.
        loss_scale: Fixed scale of the loss on an Ascend.
        optimizer: Its class and its keywords.
        steps: Several train steps on one network, by name, in the order in which they run.
        task_args: What else the task wants to know.
        best: The metric by which the best epoch is kept; None is the first that the task names,
            False keeps none.
        early_stop: The metric that ends the run where it does not improve any more.
        source: Where the keys stand.

    Examples:
        >>> import msgrad as mg
        >>> from msgrad.runs import Config
        >>> config = Config("task.py", mg.Plan.from_dict({"plan": [{"freeze": "0"}]}), name="first")
        >>> str(config.weights)
        'runs/first/weights.ckpt'
    """

    task: str
    plan: Plan
    name: str = "run"
    mode: str = "graph"
    device_target: str = "auto"
    device_id: int | None = None
    distribute: bool | str = "auto"
    data_dir: str | None = None
    epoch_size: int = 1
    batch_size: int = 32
    ckpt_path: str | None = None
    ckpt_save_dir: str = ""
    dataset_sink_mode: bool = False
    seed: int = 1
    jit_level: str | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    unreached: str = "freeze"
    has_aux: bool = False
    loss_scale: float | None = None
    optimizer: OptimizerKeys = field(default_factory=OptimizerKeys)
    steps: Mapping[str, StepKeys] = field(default_factory=dict)
    task_args: Mapping[str, Any] = field(default_factory=dict)
    best: Until | Literal[False] | None = None
    early_stop: Until | None = None
    source: Document = field(default_factory=lambda: Document({}), repr=False, compare=False)

    @property
    def save_dir(self) -> Path:
        """Where the run leaves what it writes."""
        return Path(self.ckpt_save_dir or Path("runs", self.name))

    @property
    def weights(self) -> Path:
        """The checkpoint that the run leaves at its end, of all weights."""
        return self.save_dir / WEIGHTS

    @property
    def shard(self) -> dict[str, int]:
        """The part of the data that this process reads, as datasets of MindSpore take it."""
        if not communication.GlobalComm.INITED:
            return {}
        size = communication.get_group_size()
        return {"num_shards": size, "shard_id": communication.get_rank()} if size > 1 else {}

    def data_folder(self) -> Path:
        """Return the folder of the data.

        Raises:
            PlanError: The config names none, or one that does not exist.
        """
        if self.data_dir is None:
            raise PlanError(
                problems=[
                    self.source.problem(
                        (), "data_dir is missing, and this task reads one; give --set data_dir=PATH"
                    )
                ]
            )
        self.check_paths("data_dir")
        return Path(self.data_dir)

    def check_paths(self, *keys: str) -> None:
        """Look whether the files and folders are there that the config names.

        Args:
            *keys: Which of ``data_dir`` and ``ckpt_path``; both by default.

        Raises:
            PlanError: They are not; all of them.
        """
        problems = self.path_problems(*keys)
        if problems:
            raise PlanError(problems=problems)

    def path_problems(self, *keys: str) -> list[Problem]:
        """Return what `check_paths` would raise."""
        kinds = {"data_dir": ("folder", Path.is_dir), "ckpt_path": ("file", Path.is_file)}
        problems = []
        for key in keys or kinds:
            given, (kind, is_there) = getattr(self, key), kinds[key]
            if given is not None and not is_there(Path(given)):
                message = f"{key} {given!r} is no {kind}, seen from {os.getcwd()!r}"
                problems.append(self.source.problem((key,), f"{message}; give one that exists"))
        return problems

    def to_dict(self, folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return all keys, as a config file in a folder would have them.

        Args:
            folder: Where the file is to lie; that of the config by default.
        """
        keys: dict[str, Any] = {
            key: value
            for key, value in vars(self).items()
            if key not in ("task", "plan", "source", "optimizer", "steps")
        }
        keys["ckpt_save_dir"] = str(self.save_dir)
        keys["optimizer"] = self.optimizer.to_dict()
        for key in ("best", "early_stop"):
            keys[key] = keys[key].to_dict() if isinstance(keys[key], Until) else keys[key]
        keys["steps"] = {name: step.to_dict() for name, step in self.steps.items()}
        values = {"task": self.task, **keys, **self.plan.to_dict()}
        return values if folder is None else _moved(values, self.source.folder, Path(folder))

    def to_yaml(self, folder: str | os.PathLike[str] | None = None) -> str:
        """Return the resolved config as YAML, see `to_dict`."""
        yaml = needed("yaml", "a config file")
        return yaml.safe_dump(plain(self.to_dict(folder)), sort_keys=False, allow_unicode=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the resolved config, whole or not at all; the file starts the same run.

        Raises:
            CheckpointError: The file cannot be written.
        """
        write_text(path, self.to_yaml(Path(path).parent))


def load_config(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Config:
    """Read a config file and apply changes such as ``optimizer.learning_rate=0.01``.

    Args:
        path: A YAML file. Paths of Python files in it start from its folder, those of data and
            checkpoints from the working directory.
        changes: ``key=value`` each, the value in YAML; dots lead into mappings, numbers into lists.

    Returns:
        The config, each key checked; whether data and checkpoints are there is not looked at.

    Raises:
        PlanError: The file cannot be read, or keys or values cannot be used: all of them, each with
            its line and the remedy.
        MissingPackageError: PyYAML is not installed.

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import load_config
        >>> Path("task.py").touch()
        >>> _ = Path("run.yaml").write_text("{task: task.py, plan: [{freeze: '0'}], seed: 3}")
        >>> config = load_config("run.yaml", ["optimizer.learning_rate=0.01"])
        >>> config.name, config.seed, config.optimizer.learning_rate
        ('run', 3, 0.01)
    """
    document = override(read_document(path), changes)
    checker = Checker(document)
    keys = read_run_keys(checker)
    # it also notes the keys that are neither its own nor of the run
    plan = Plan.read(checker)
    if not checker.problems:
        _check_room(checker, plan, keys.get("epoch_size", Config.epoch_size))
        _check_keywords(checker, plan, keys)
    name = keys.pop("name", None) or Path(path).stem
    if checker.problems:
        if "task" in keys:
            keys["task_args"] = dict(keys.get("task_args", {}))
            found = Config(name=name, plan=plan, source=document, **keys)
            look_further(checker, found, plan)
        checker.raise_all()
    return Config(name=name, plan=plan, source=document, **keys)


def _check_keywords(checker: Checker, plan: Plan, keys: Mapping[str, Any]) -> None:
    """Note what a stage gives the optimizer, that of the first step, and it does not take."""
    own = next((step.optimizer for step in keys.get("steps", {}).values()), None)
    name = (own or keys.get("optimizer", OptimizerKeys())).name
    takes = dict.fromkeys(optimizer_keywords(name), Kind(lambda value: value))
    for stage in plan.written_stages:
        path = (*stage.path, "optimizer")
        checker.mapping(path, stage.optimizer or {}, takes, f"optimizer {name} of {stage.name}")


def _check_room(checker: Checker, plan: Plan, epochs: int) -> None:
    """Note the first stage that the run is too short for; how long steps are, data tell."""
    # the open one, which comes last, needs an epoch to hold in
    needs = [1 if stage.length is None else stage.epochs or 0 for stage in plan.written_stages]
    ends = list(accumulate(needs))
    late = next((number for number, end in enumerate(ends, 1) if end > epochs), None)
    if late is None or any(stage.unit == "steps" for stage in plan.stages):
        return
    end = ends[late - 1]
    if plan.stages[late - 1].length is None:
        fact, whose = f"begins behind epoch {end - 1}", "shorten those before it"
    else:
        fact, whose = f"ends with epoch {end}", "shorten it"
    checker.note(
        ("stages", late - 1, "epochs"),
        f"stage {late} {fact} and epoch_size is {epochs}; {whose}, or give epoch_size: "
        f"{ends[-1]} or more",
    )


def _moved(values: Any, old: Path, new: Path) -> Any:
    """Return values whose Python files are found from another folder."""
    if isinstance(values, Mapping):
        return {key: _moved(value, old, new) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_moved(value, old, new) for value in values]
    if not isinstance(values, str):
        return values
    file, end, function = values.partition(".py")
    # a file, or a function in it; no name of a layer looks like that
    if not end or not (function == "" or function.startswith(":")):
        return values
    return os.path.relpath((old / file).resolve(), new.resolve()) + end + function
