"""A plan as it is written: read from a dict or a YAML file, and turned into a dict again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgrad._document import Document, read_document
from msgrad._plan_keys import AuditSettings, check_top, read_audit, read_rules, read_stages
from msgrad._plan_rule import PlanRule
from msgrad._plan_stage import PlanStage
from msgrad._plan_times import stages_of
from msgrad._schema import Checker
from msgrad._stage import Stage

Self = TypeVar("Self", bound="WrittenPlan")


@dataclass(frozen=True)
class WrittenPlan:
    """Rules, stages and an audit, of which no network is known yet; `Plan` adds that.

    Attributes:
        rules: The rules, in order; those of ``updates`` last.

    Examples:
        >>> WrittenPlan.from_dict({"plan": [{"freeze": "conv1"}]}).to_dict()
        {'plan': [{'freeze': 'conv1'}]}
    """

    rules: tuple[PlanRule, ...] = ()
    _stages: tuple[PlanStage, ...] = ()
    _audit: AuditSettings | None = None
    _document: Document = field(default_factory=lambda: Document({}), compare=False, repr=False)

    @classmethod
    def from_dict(cls: type[Self], values: Mapping[str, Any]) -> Self:
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
            msgrad._errors.PlanError: key 'freez' of rule 1 is unknown; did you mean 'freeze'?
        """
        return cls.from_document(Document(values))

    @classmethod
    def from_file(cls: type[Self], path: str | os.PathLike[str]) -> Self:
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
    def from_document(cls: type[Self], document: Document) -> Self:
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
    def read(cls: type[Self], checker: Checker) -> Self:
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
    def stages(self) -> list[Stage]:
        """The stages, in order; what the rest is, the network of a `Schedule` says."""
        return stages_of(self.rules, self._stages, plain=True)
