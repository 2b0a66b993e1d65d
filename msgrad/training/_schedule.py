"""A schedule: the stages of a run, as a function of its position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import mindspore as ms
from mindspore import Parameter, nn
from mindspore.train import Callback

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import Claim, Freeze, Record, lift_loaded, make_claims, records_of, unfreeze
from msgrad.network import Pattern, Selection, one_walk, select, show
from msgrad.optim import check_settings
from msgrad.training._step import TrainStep


@dataclass(frozen=True)
class Stage:
    """One fixed set of trainable parameters and of held behaviour, for some epochs or steps.

    With ``train`` these are unfrozen and all else is frozen; with ``freeze`` these are frozen and
    all else is as it was. What the model made untrainable stays so.

    Args:
        train: Patterns of what trains, see `select`.
        freeze: Patterns of what is frozen; give this or ``train``.
        epochs: Length in epochs, 0 or more.
        steps: Length in steps, 0 or more; give at most one of the two. Without any the stage is
            open and lasts to the end of the run.
        statistics: Wholly frozen norm cells keep their statistics, as in `freeze`.
        dropout: In wholly frozen cells dropout is off, as in `freeze`.
        lr: Rate of this stage, whatever an earlier one came to; ``optimizer`` of the step gets it
            by the keyword ``lr``, or the rate is set where its weights have a single one.
        optimizer: What else ``optimizer`` of the step gets by keyword, such as
            ``{"momentum": 0.8}``: plain values. A stage with settings of its own is compiled.

    Raises:
        ArgumentError: Both or none of ``train`` and ``freeze``, both lengths, or a negative one.
        ArgumentTypeError: A length is no whole number, ``lr`` no number, or ``optimizer`` no dict
            of plain values.

    Examples:
        >>> import msgrad as mg
        >>> mg.Stage(train="head", epochs=2)
        Stage(train='head', epochs=2)
    """

    train: Pattern | None = None
    freeze: Pattern | None = None
    epochs: int | None = None
    steps: int | None = None
    statistics: bool = True
    dropout: bool = True
    lr: float | None = None
    optimizer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.train is None) == (self.freeze is None):
            given = "both" if self.train is not None else "neither"
            raise ArgumentError(f"stage has {given} of train= and freeze=; give one of the two")
        pattern = self.train if self.train is not None else self.freeze
        if isinstance(pattern, (bool, int, float)):
            raise ArgumentTypeError(
                f"stage has {pattern!r} as its pattern; give a name, and the length as epochs="
            )
        if self.epochs is not None and self.steps is not None:
            raise ArgumentError(
                f"stage has epochs={self.epochs!r} and steps={self.steps!r}; give one of the two"
            )
        check_settings(self.lr, self.optimizer)
        length = self.epochs if self.epochs is not None else self.steps
        if length is None:
            return
        if isinstance(length, bool) or not isinstance(length, int):
            raise ArgumentTypeError(f"stage is {length!r} {self.unit} long; give a whole number")
        if length < 0:
            raise ArgumentError(f"stage is {length!r} {self.unit} long; give 0 or more")

    @property
    def unit(self) -> Literal["epochs", "steps"] | None:
        """What the length counts, None for an open stage."""
        if self.epochs is not None:
            return "epochs"
        return "steps" if self.steps is not None else None

    @property
    def length(self) -> int | None:
        """The number of epochs or steps, None for an open stage."""
        return self.epochs if self.epochs is not None else self.steps

    def __repr__(self) -> str:
        what = "train" if self.train is not None else "freeze"
        pattern = self.train if self.train is not None else self.freeze
        parts = [f"{what}={show(pattern)}"]
        if self.unit is not None:
            parts.append(f"{self.unit}={self.length}")
        parts += [f"{n}=False" for n in ("statistics", "dropout") if not getattr(self, n)]
        own = {"lr": self.lr, "optimizer": self.optimizer}
        parts += [f"{name}={value!r}" for name, value in own.items() if value is not None]
        return f"Stage({', '.join(parts)})"


def gradual_stages(layers: Sequence[Pattern], *, epochs: int | Sequence[int]) -> list[Stage]:
    """Make stages that unfreeze a network from its output to its input.

    The first trains the last layer alone, each further one a layer more; the last is open.

    Args:
        layers: Patterns from input to output, one for each layer; what is in none of them is
            frozen.
        epochs: Length of each stage but the last, or one number for each of these.

    Returns:
        As many stages as layers.

    Raises:
        ArgumentError: No layers, or another number of lengths than of stages before the last.

    References:
        J. Howard, S. Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018,
        https://arxiv.org/abs/1801.06146, section 3.3 (gradual unfreezing).

    Examples:
        >>> import msgrad as mg
        >>> mg.gradual_stages(["stem", "body", "head"], epochs=1)
        [Stage(train=['head'], epochs=1), Stage(train=['body', 'head'], epochs=1), \
Stage(train=['stem', 'body', 'head'])]
    """
    if isinstance(layers, str) or not layers:
        raise ArgumentError(f"layers {layers!r} is no list of layers; give one pattern for each")
    count = len(layers) - 1
    lengths = [epochs] * count if isinstance(epochs, int) else list(epochs)
    if len(lengths) != count:
        raise ArgumentError(
            f"epochs has {len(lengths)} lengths for {count} stages before the last; give {count}"
        )
    return [
        Stage(train=list(layers[-1 - number :]), epochs=length)
        for number, length in enumerate([*lengths, None])
    ]


class Schedule(Callback):
    """Freeze and unfreeze by stages, in ``Model.train`` or in a loop of one's own.

    Which stage holds depends on the position alone: applying it twice changes nothing, and a run
    that is resumed begins in the right one. Going to a stage takes back what the one before froze
    and unfroze, and nothing else. In ``Model.train`` the callback also keeps
    ``cb_params.optimizer`` current, so that MindSpore's own callbacks for the rate go on working.

    With a real data sink, which only a device has, a stage begins at the start of a sink. That the
    graph of each stage is the one compiled and launched there was seen in dry runs for Ascend
    (``tests/ascend``), not on a device.

    Args:
        step: The step that trains.
        stages: The stages in order; all lengths in epochs, or all in steps; the last may be open.
        epochs: Length of the run in epochs, where no ``Model.train`` tells it.
        steps: Length of the run in steps, likewise.

    Raises:
        ArgumentError: No stages, lengths in both units, an open stage before the last, more
            stages than the run has room for, or a stage with nothing to train.
        NoMatchError: A pattern of a stage selects nothing.
        ArgumentTypeError: ``step`` is no `TrainStep`, or a stage is no `Stage`.

    Examples:
        >>> from mindspore import Parameter, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss())
        >>> schedule = mg.Schedule(step, [mg.Stage(train="1", epochs=2), mg.Stage(train="*")])
        >>> schedule.at(epoch=0)
        Stage(train='1', epochs=2)
        >>> step.trainable
        ['1.weight', '1.bias']
        >>> schedule.at(epoch=2)
        Stage(train='*')
        >>> len(step.trainable)
        4
    """

    def __init__(
        self,
        step: TrainStep,
        stages: Sequence[Stage],
        *,
        epochs: int | None = None,
        steps: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(step, TrainStep):
            raise ArgumentTypeError(f"step is a {type(step).__name__}; give a TrainStep")
        self.step = step
        self.stages = list(stages)
        self.unit = _check_stages(self.stages)
        # the stage that holds at a position is the first whose end lies behind it
        self._ends = list(accumulate(stage.length or 0 for stage in self.stages))
        self._current: int | None = None
        self._undo = ExitStack()
        self._checked = False
        self._before = 0
        self._loads = step.loads
        self._weights: list[Parameter] = []
        self._check_room({"epochs": epochs, "steps": steps}.get(self.unit))
        for stage in self.stages:
            _plan(step.network, stage)
            step.ask_of_optimizer(check_settings(stage.lr, stage.optimizer), now=False)

    def at(self, *, epoch: int | None = None, step: int | None = None) -> Stage:
        """Make the stage of a position hold; where it holds already, nothing changes.

        Args:
            epoch: Epochs done so far.
            step: Steps done so far; where the lengths are in steps, this is what counts.

        Returns:
            The stage.

        Raises:
            ArgumentError: The number that counts is missing or negative.
        """
        position = epoch if self.unit == "epochs" else step
        if position is None or position < 0:
            unit = self.unit[:-1]
            raise ArgumentError(f"{unit} {position!r} is no position; give .at({unit}=0) or later")
        if epoch is not None:
            self.step.set_epoch(epoch)
        self._go(self.index(position))
        return self.stages[self._current or 0]

    def index(self, position: int) -> int:
        """Return the number of the stage at a position, in epochs or steps done so far."""
        last = len(self.stages) - 1
        return next((n for n, end in enumerate(self._ends[:last]) if position < end), last)

    def set_ends(self, ends: Sequence[int]) -> None:
        """Let the stages end elsewhere than their lengths say, as where a metric has the say.

        Args:
            ends: For each stage the epochs, or steps, that are done when it ends; that of the last
                is not looked at.

        Raises:
            ArgumentError: There are not as many as stages, or they fall.
        """
        if len(ends) != len(self.stages) or list(ends) != sorted(ends):
            raise ArgumentError(
                f"ends {ends!r} are no rising ends of {len(self.stages)} stages; give one for each"
            )
        last = ends[-1] if self.stages[-1].length is not None else max([0, *ends[:-1]])
        self._ends = [*ends[:-1], last]

    def _go(self, number: int) -> None:
        if self.step.loads != self._loads:
            # what this stage did is that of the file now, and is not to be taken back
            self._loads, self._current = self.step.loads, None
            self._undo.pop_all()
        if number == self._current:
            return
        net, names = self.step.network, [_name(n) for n in range(len(self.stages))]
        self._current = None
        with one_walk():
            self._undo.close()
            lift_loaded(records_of(net).values(), names)
            with ExitStack() as undo:
                for change in _apply(net, self.stages[number], names[number]):
                    undo.enter_context(change)
                self._undo = undo.pop_all()
        stage = self.stages[number]
        self.step.ask_of_optimizer(check_settings(stage.lr, stage.optimizer))
        self._current, self._weights = number, list(net.get_parameters())
        self.step.led_by(self._renew)

    def _renew(self) -> None:
        """Make the stage hold for cells that were exchanged since."""
        now, number = self.step.network.get_parameters(), self._current
        if number is not None and {id(p) for p in now} != {id(p) for p in self._weights}:
            self._current = None
            self._go(number)

    def _check_room(self, room: int | None) -> None:
        # an open one needs room to hold in
        is_open = self.stages[-1].length is None
        if room is not None and self._ends[-1] + is_open > room:
            needs = f"the last begins behind them, so it needs {self._ends[-1] + 1}: " * is_open
            raise ArgumentError(
                f"the stages are {self._ends[-1]} {self.unit} long and the run has {room}; {needs}"
                f"shorten them or {'train longer' if is_open else 'leave the last one open'}"
            )

    def on_train_begin(self, run_context: Any) -> None:
        """Note that a run begins, whose length is to be checked.

        Raises:
            ArgumentError: The Model trains something else than the step of this schedule.
        """
        if run_context.original_args().network is not self.step:
            raise ArgumentError(
                "this Model does not train the step of the schedule, so no stage would take "
                "effect; train ms.Model(step)"
            )
        self._checked = False

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Check the lengths at the first epoch, and go to the stage of this one."""
        params = run_context.original_args()
        done = params.cur_epoch_num - 1
        if not self._checked:
            # only now is the epoch known from which a resumed run starts
            epochs = done + params.epoch_num
            self._check_room(epochs if self.unit == "epochs" else epochs * params.batch_num)
            self._checked = True
        # a Model that goes on from a later epoch counts its steps from 0 all the same
        counted = params.cur_step_num // params.batch_num
        self._before = (done - counted) * params.batch_num
        self.step.set_epoch(done)
        if self.unit == "epochs":
            self.at(epoch=done)
        params.optimizer = self.step.optimizer

    def on_train_step_begin(self, run_context: Any) -> None:
        """Go to the stage of this step; under a data sink, compile the outer cell for it."""
        params = run_context.original_args()
        sink = params.dataset_helper.sink_size() if _sinks(params) else 1
        if self.unit == "steps":
            self.at(step=self._before + params.cur_step_num - sink)
        if _sinks(params):
            # the sink's outer cell is compiled once for each phase and never calls the step
            params.train_network.phase = self.step.prepare_for_sink()
        else:
            self.step.prepare()
        params.optimizer = self.step.optimizer

    def on_train_step_end(self, run_context: Any) -> None:
        """Count the steps of a data sink, which never calls the step."""
        params = run_context.original_args()
        if _sinks(params):
            self.step.count_steps(params.dataset_helper.sink_size())

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Note that an epoch is done, for a save at its end."""
        self.step.set_epoch(run_context.original_args().cur_epoch_num)


def _sinks(params: Any) -> bool:
    # in PYNATIVE_MODE the outer cell calls the step as anybody does
    wrapped = params.train_network is not params.network
    return wrapped and ms.get_context("mode") == ms.GRAPH_MODE


def _check_stages(stages: Sequence[Stage]) -> str:
    if not stages:
        raise ArgumentError("stages is empty; give at least one Stage")
    for stage in stages:
        if not isinstance(stage, Stage):
            raise ArgumentTypeError(f"stage {stage!r} is a {type(stage).__name__}; give a Stage")
    for number, stage in enumerate(stages[:-1]):
        if stage.unit is None:
            raise ArgumentError(
                f"stage {number + 1} of {len(stages)} has no length; give epochs= or steps=, only "
                "the last may be open"
            )
    units = {stage.unit for stage in stages} - {None}
    if len(units) > 1:
        raise ArgumentError("stages are counted in epochs and in steps; give all lengths in one")
    return units.pop() or "epochs" if units else "epochs"


def _plan(net: nn.Cell, stage: Stage) -> tuple[Selection, Selection]:
    """Return what a stage unfreezes and what it freezes."""
    records = records_of(net).values()
    pattern = stage.train if stage.train is not None else stage.freeze
    chosen = {id(p) for p in select(net, pattern)}
    design = [r for r in records if r.design]
    named = [r.parameter for r in design if id(r.parameter) in chosen]
    others = [r.parameter for r in design if id(r.parameter) not in chosen]
    thaw, hold = (named, others) if stage.train is not None else ([], named)
    left = named if stage.train is not None else others
    if not left or not named:
        what = "trains" if not left else "freezes"
        raise ArgumentError(f"{stage!r} {what} nothing of {len(design)} parameters; name a weight")
    return Selection(thaw), Selection(hold)


def _apply(net: nn.Cell, stage: Stage, name: str) -> Iterator[Freeze]:
    thaw, hold = _plan(net, stage)
    records = records_of(net)
    held = [p for p in thaw if records[id(p)].claims or not p.requires_grad]
    if held:
        yield unfreeze(net, Selection(held))
    for (statistics, dropout), weights in _by_wish(records, hold, stage).items():
        claim = Claim(name, statistics=statistics, dropout=dropout, of_stage=True)
        yield make_claims(net, [(claim, [records[id(p)] for p in weights])])


def _by_wish(
    records: Mapping[int, Record], hold: Selection, stage: Stage
) -> dict[tuple[bool, bool], list[Parameter]]:
    """Group what a stage freezes: what is frozen already goes on behaving as its freeze says."""
    groups: dict[tuple[bool, bool], list[Parameter]] = {}
    for parameter in hold:
        claims = records[id(parameter)].claims
        statistics = stage.statistics and (not claims or any(c.statistics for c in claims))
        dropout = stage.dropout and (not claims or any(c.dropout for c in claims))
        groups.setdefault((statistics, dropout), []).append(parameter)
    return groups


def _name(number: int) -> str:
    return f"stage {number + 1} of the schedule"
