"""A plan: what may change and when, as rules and stages from a dict or a YAML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from mindspore import Parameter, Tensor, nn

from msgrad.errors import ArgumentError, ConflictError, PlanError, Problem
from msgrad.network import Pattern, collector_paused, one_walk, select, select_one
from msgrad.plans._apply import Applied, apply_rules
from msgrad.plans._contradictions import contradictions
from msgrad.plans._document import Document, read_document
from msgrad.plans._explain import tell
from msgrad.plans._keys import AuditSettings, check_top, read_audit, read_rules, read_stages
from msgrad.plans._resolve import ResolvedRules, ResolvedStages, stages_of
from msgrad.plans._rule import PlanRule
from msgrad.plans._schema import Checker
from msgrad.plans._stage import PlanStage
from msgrad.plans._step import StepParts, first_stage
from msgrad.plans._user_code import Functions
from msgrad.training import Schedule, Stage, TrainStep


class _PlanConflictError(PlanError, ConflictError):
    """A plan has rules that disagree over one weight or cell with several paths."""


@dataclass(frozen=True)
class Plan:
    """What may change in a network, and when: ordered rules, stages, an audit.

    Made by `from_dict` or `from_file`. For each parameter, or cell, and for each field that a rule
    has a say in, the last rule that takes it decides.

    Attributes:
        rules: The rules, in order; those of ``updates`` last.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> plan = mg.Plan.from_dict({
        ...     "plan": [{"freeze": "0"}, {"group": "*.bias", "weight_decay": 0.0}],
        ...     "stages": [{"train": "2", "epochs": 1}, {"train": "the rest"}],
        ... })
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 8), nn.Dense(8, 2))
        >>> plan.apply(net).frozen
        ['0.weight', '0.bias']
        >>> plan.stages
        [Stage(train='2', epochs=1), Stage(train=the rest)]
        >>> print(mg.explain(net, "0.bias", plan))
        0.bias (8,) stays
          model: made it trainable
        > freeze: rule 1 of the plan keeps it, over the model
          plan: rule 1 of the plan freeze '0': keeps it
          plan: rule 2 of the plan group '*.bias': weight_decay 0.0
          plan: stage 1 of the plan keeps it
          plan: stage 2 of the plan keeps it
    """

    rules: tuple[PlanRule, ...] = ()
    _stages: tuple[PlanStage, ...] = ()
    _audit: AuditSettings | None = None
    _document: Document = field(default_factory=lambda: Document({}), compare=False, repr=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """Make a plan of a dict.

        Args:
            values: The keys ``plan``, ``stages``, ``updates`` and ``audit``, none of which must be
                there; keys of a run are passed over. Patterns and functions may also be those of
                Python: a Cell class, a callable.

        Returns:
            The plan.

        Raises:
            PlanError: Keys, types or values cannot be used; all of it is listed.

        Examples:
            >>> import msgrad as mg
            >>> mg.Plan.from_dict({"plan": [{"freez": "conv1"}]})
            Traceback (most recent call last):
            msgrad.errors.PlanError: key 'freez' of rule 1 is unknown; did you mean 'freeze'?
        """
        return cls.from_document(Document(values))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan from a YAML file, which may be a whole config.

        Args:
            path: The file; paths in it start from its folder.

        Returns:
            The plan.

        Raises:
            PlanError: The file cannot be read, or as in `from_dict`, a line for each problem that
                begins with ``file:line``.
            MissingPackageError: PyYAML is not installed.
        """
        return cls.from_document(read_document(path))

    @classmethod
    def from_document(cls, document: Document) -> Plan:
        """Make a plan of values that know their lines.

        Args:
            document: The values.

        Returns:
            The plan.

        Raises:
            PlanError: As in `from_dict`.
        """
        checker = Checker(document)
        plan = cls.read(checker)
        checker.raise_all()
        return plan

    @classmethod
    def read(cls, checker: Checker) -> Plan:
        """Make a plan of the document of a checker, which notes what is wrong.

        Args:
            checker: Collects the problems, those of a config beside the plan's.

        Returns:
            The plan, which is to be used only where the checker found nothing.
        """
        values = checker.document.values
        if not isinstance(values, Mapping):
            where = "the file holds" if checker.document.file else "the plan is"
            checker.note((0,), f"{where} {values!r}; write plan: and the list under it")
            return cls()
        check_top(checker, values)
        rules = read_rules(checker, values)
        stages = read_stages(checker, values)
        return cls(rules, stages, read_audit(checker, values), checker.document)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dict, which `from_dict` makes an equal plan of.

        Returns:
            Plain values, as they could stand in a YAML file; the updates are among the rules.

        Examples:
            >>> import msgrad as mg
            >>> plan = mg.Plan.from_dict({"updates": {"fc1": "non_negative"}})
            >>> plan.to_dict()
            {'plan': [{'update': 'fc1', 'fn': 'non_negative'}]}
            >>> mg.Plan.from_dict(plan.to_dict()) == plan
            True
        """
        found: dict[str, Any] = {"plan": [rule.to_dict() for rule in self.rules]}
        if self._stages:
            found["stages"] = [stage.to_dict() for stage in self._stages]
        if self._audit is not None:
            found["audit"] = dict(vars(self._audit))
        return found

    @property
    def audit(self) -> AuditSettings:
        """Whether and how a run is audited before it trains; never, where nothing is said."""
        return self._audit or AuditSettings(when="never")

    @property
    def written_stages(self) -> tuple[PlanStage, ...]:
        """The stages as they were written."""
        return self._stages

    def shortened(self) -> Plan:
        """Return the plan with stages of one epoch each, of which no metric decides."""
        short = [
            stage if stage.length == 0 else replace(stage, epochs=1, steps=None, until=None)
            for stage in self._stages
        ]
        return replace(self, _stages=tuple(short))

    @property
    def stages(self) -> list[Stage]:
        """The stages, in order; what the rest is, the network of a `Schedule` says."""
        return stages_of(self.rules, self._stages, plain=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        # nothing in it changes, and a copy of a network is under the same plan
        return self

    @cached_property
    def _functions(self) -> Functions:
        return Functions(self._document.folder)

    def check(self, net: nn.Cell) -> None:
        """Refuse what cannot be meant for a network; it is not changed, and nothing is compiled.

        Args:
            net: The network.

        Raises:
            PlanError: Patterns that select nothing, contradictions and the like, all of them.
            ConflictError: Rules that reach one weight by different paths disagree; it is also a
                PlanError.
            ArgumentTypeError: ``net`` is no Cell.
        """
        self._look(net)

    def unmatched(self, net: nn.Cell) -> list[Problem]:
        """List the patterns that select nothing, where not all rules could be read.

        Args:
            net: The network; it is not changed.
        """
        resolved = ResolvedRules((), net)
        for rule in self.rules:
            resolved.matches_of(rule)
        for stage in self._stages:
            if not stage.rest:
                key = "train" if stage.train else "freeze"
                resolved.choose((*stage.path, key), stage.name, stage.train or stage.freeze)
        checker = Checker(replace(self._document, problems=()))
        for path, message in resolved.problems:
            checker.note(path, message)
        return checker.problems

    def apply(self, net: nn.Cell) -> Applied:
        """Put the rules in force, in place; what this plan did already stays as it is.

        Freezes and wrappers are put in; groups, updates and holds go into the step that
        `train_step` makes, stages into its `schedule`.

        Args:
            net: The network.

        Returns:
            What was changed; undo it or use it as a context.

        Raises:
            PlanError: As in `check`; nothing is changed.
            ConflictError: As in `check`.
            ArgumentError: A cell cannot be wrapped, see `wrap`; nothing is changed.
        """
        resolved, _ = self._look(net)
        return apply_rules(self, resolved)

    def train_step(
        self,
        net: nn.Cell,
        optimizer: Callable[[Any], nn.Cell],
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        lr: Any = None,
        weight_decay: float = 0.0,
        network: nn.Cell | Callable[..., Tensor] | None = None,
        train_cell: Callable[[nn.Cell, nn.Cell], nn.Cell] | None = None,
        updates: object = None,
        trainable: Pattern | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        loss_scale: float | Literal["dynamic"] | None = None,
        unreached: str = "freeze",
        restart_state: bool = False,
        restart_counters: bool = False,
        keep_rows: bool = False,
        has_aux: bool = False,
        labels: int | None = None,
    ) -> TrainStep:
        """Make the step that trains by this plan: its groups, updates and holds are in it.

        The plan is applied to ``net`` first where it is not yet, unless no step can be made. With
        ``trainable``, rules act in this step on what it trains only.

        Args:
            net: The network that the patterns are matched against.
            optimizer: As in `TrainStep`; where the plan has group rules it is called with groups,
                dicts as `param_groups` gives them, instead of a list of parameters.
            loss_fn: As in `TrainStep`.
            lr: Rate of the groups; it is needed where the plan has group rules, and else unused.
            weight_decay: Decay of the weights that no group rule gives one, likewise.
            network: What is trained where that is not ``net`` itself: a Cell around it, or a
                function that returns the loss.
            train_cell: As in `TrainStep`.
            updates: As in `TrainStep`, beside those of the plan, which run first.
            trainable: As in `TrainStep`.
            clip_norm: As in `TrainStep`.
            clip_value: As in `TrainStep`.
            accumulate: As in `TrainStep`.
            loss_scale: As in `TrainStep`.
            unreached: As in `TrainStep`.
            restart_state: As in `TrainStep`.
            restart_counters: As in `TrainStep`.
            keep_rows: As in `TrainStep`.
            has_aux: As in `TrainStep`.
            labels: As in `TrainStep`.

        Returns:
            The step.

        Raises:
            PlanError: As in `check`.
            ArgumentError: The plan has group rules and there is no ``lr``, or as in `TrainStep`.

        Examples:
            >>> from mindspore import nn
            >>> import msgrad as mg
            >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
            >>> plan = mg.Plan.from_dict({"plan": [{"group": "*.bias", "lr_scale": 2.0}]})
            >>> step = plan.train_step(net, lambda g: nn.SGD(g, 0.1), nn.MSELoss(), lr=0.1)
            >>> [float(rate.asnumpy()) for rate in step.optimizer.get_lr()]
            [0.1..., 0.1..., 0.2..., 0.2...]
        """
        resolved, times = self._look(net)
        only = None if trainable is None else {id(p) for p in select(net, trainable)}
        parts = StepParts(resolved, self._functions, only)
        with one_walk(), ExitStack() as undo:
            undo.enter_context(apply_rules(self, resolved))
            updates = [*parts.updates(), *_listed(updates)]
            with first_stage(times, parts.own):
                step = TrainStep(
                    net if network is None else network,
                    parts.optimizer(optimizer, lr, weight_decay),
                    loss_fn,
                    net=None if network is None or isinstance(network, nn.Cell) else net,
                    train_cell=train_cell,
                    updates=updates,
                    trainable=trainable,
                    clip_norm=clip_norm,
                    clip_value=clip_value,
                    accumulate=accumulate,
                    loss_scale=loss_scale,
                    unreached=unreached,
                    restart_state=restart_state,
                    restart_counters=restart_counters,
                    keep_rows=keep_rows,
                    has_aux=has_aux,
                    labels=labels,
                )
            undo.pop_all()
        return step

    def schedule(
        self,
        step: TrainStep,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        watched: bool = False,
    ) -> Schedule | None:
        """Make the schedule of the stages.

        Args:
            step: The step that trains.
            epochs: Length of the run in epochs, as in `Schedule`.
            steps: Length of the run in steps, likewise.
            watched: Whether the caller ends the stages that have ``until``, by
                `Schedule.set_ends`, as a run of a config does.

        Returns:
            The schedule, or None where the plan has no stages.

        Raises:
            ArgumentError: As in `Schedule`, or a stage has ``until`` and nobody watches its metric.
        """
        if not self._stages:
            return None
        ending = next((stage for stage in self._stages if stage.until is not None), None)
        if ending is not None and not watched:
            raise ArgumentError(
                f"{ending.label} has until, and a schedule sees no metric; train by msgrad train "
                "or msgrad.runs.train, or give epochs"
            )
        stages = stages_of(self.rules, self._stages, plain=False, epochs=epochs)
        return Schedule(step, stages, epochs=epochs, steps=steps)

    def trains(self, net: nn.Cell) -> list[list[str]]:
        """List what trains in each stage; a plan without stages has one.

        Args:
            net: The network; it is not changed.

        Returns:
            For each stage the names, in network order.

        Raises:
            PlanError: As in `check`.

        Examples:
            >>> from mindspore import nn
            >>> import msgrad as mg
            >>> stages = [{"train": "*.bias", "steps": 9}, {"train": "*"}]
            >>> plan = mg.Plan.from_dict({"stages": stages})
            >>> plan.trains(nn.SequentialCell(nn.Dense(4, 8)))
            [['0.bias'], ['0.weight', '0.bias']]
        """
        resolved, times = self._look(net)
        return [resolved.names(trained) for trained in times.trained]

    def rules_of(self, net: nn.Cell, name: str | Parameter) -> list[str]:
        """Say what each rule and stage that takes a parameter decides of it, and what it overrides.

        Args:
            net: The network.
            name: Name of the parameter, or a path to it.

        Returns:
            A line for each rule and stage, in order; see also `explain`.

        Raises:
            NoMatchError: There is no parameter of this name.
            ArgumentError: The name is that of several.
        """
        parameter = select_one(net, name)
        resolved = ResolvedRules(self.rules, net)
        return tell(resolved, ResolvedStages(resolved, self._stages), parameter)

    @collector_paused()
    def _look(self, net: nn.Cell) -> tuple[ResolvedRules, ResolvedStages]:
        """Match everything against a network, and refuse what is wrong."""
        resolved = ResolvedRules(self.rules, net)
        times = ResolvedStages(resolved, self._stages)
        checker = Checker(self._document)
        for path, message in [
            *resolved.problems,
            *times.problems,
            *resolved.conflicts,
            *contradictions(resolved, times, self._functions),
        ]:
            checker.note(path, message)
        checker.raise_all(_PlanConflictError if resolved.conflicts else PlanError)
        return resolved, times


def _listed(updates: object) -> list[object]:
    return list(updates) if isinstance(updates, (list, tuple)) else [updates]
