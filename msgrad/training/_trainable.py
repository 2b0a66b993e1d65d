"""What a step trains: what may move, is taken by the step, and gets a gradient."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

import mindspore as ms
from mindspore import Parameter, nn

from msgrad._text import count, few
from msgrad.backend import sharding_mode
from msgrad.errors import ArgumentError, ConflictError
from msgrad.freezing import Record
from msgrad.network import Pattern, Reach, find_reach, paths_of, select, silence
from msgrad.training._loss import raise_refusal

logger = logging.getLogger("msgrad")
_UNREACHED = ("freeze", "error", "allow")


class NothingLeftError(ArgumentError):
    """Nothing is left to train."""


class Trainable:
    """Decides for one step; the reach is found once for each set of routes and kept."""

    def __init__(self, network: nn.Cell, only: Pattern | None, unreached: str) -> None:
        if unreached not in _UNREACHED:
            known = ", ".join(map(repr, _UNREACHED))
            raise ArgumentError(f"unreached {unreached!r} is unknown; give one of {known}")
        paths_of(network)  # refuses two parameters of one name
        self._network = network
        self._pattern, self._only, self._seen = only, None, set()
        self._choose([])
        self._unreached = unreached
        self._reaches: dict[Hashable, Reach] = {}
        self._told: set[tuple[Hashable, str]] = set()

    def _choose(self, records: Sequence[Record]) -> None:
        """Match the pattern of ``trainable=``, anew where parameters were exchanged."""
        if self._pattern is None or (records and {id(r.parameter) for r in records} <= self._seen):
            return
        self._only = {id(p) for p in select(self._network, self._pattern)}
        self._seen = {id(p) for p in self._network.get_parameters()}

    def knows(self, routes: Hashable) -> bool:
        """Say whether the reach by these routes is known, or not asked for."""
        return self._unreached == "allow" or routes in self._reaches

    def learn(self, routes: Hashable, found: Reach) -> None:
        """Take a reach that somebody else found, where it is asked for and not known."""
        if not self.knows(routes):
            self._reaches[routes] = found

    def of(
        self, records: Sequence[Record], routes: Hashable, inputs: Sequence[object] | None
    ) -> list[Parameter]:
        """List what is to be trained, in network order.

        Raises:
            NothingLeftError: Nothing is.
            ConflictError: A trainable weight gets no gradient, and that is to be an error.
        """
        self._choose(records)
        wanted = [r for r in records if r.trains and self.takes(r)]
        if inputs is not None and wanted and not self.knows(routes):
            self._reaches[routes] = self._find(inputs)
        known = self._reaches.get(routes)
        lost = set(known.unreached) if known is not None else set()
        left = [r.parameter for r in wanted if r.parameter.name not in lost]
        if len(left) < len(wanted) and self._unreached == "error":
            names = [r.parameter.name for r in wanted if r.parameter.name in lost]
            raise ConflictError(
                f"{len(names)} of {len(wanted)} trainable parameters get no gradient: "
                f"{few(names)}; freeze them, take the stop away, or give unreached='freeze'"
            )
        if not left:
            raise self._nothing_left(records, len(wanted))
        if known is not None:
            self._tell(routes, known, {r.parameter.name for r in wanted})
        return left

    def _find(self, inputs: Sequence[object]) -> Reach:
        mode = sharding_mode()
        if mode is not None:
            raise ArgumentError(
                f"parallel_mode {mode!r} shards weights in the first graph that is compiled, which "
                "the look for what a gradient reaches would be; give TrainStep unreached='allow'"
            )
        try:
            with silence():
                return find_reach(self._network, inputs)
        except Exception as error:
            raise_refusal(error)
            # in PYNATIVE_MODE a network trains that no graph can be made of
            if ms.get_context("mode") == ms.GRAPH_MODE:
                raise
            logger.warning(
                "what a gradient reaches is not known, and nothing leaves the optimizer for it: "
                "the network does not compile as a graph (%s); unreached='allow' does not ask",
                str(error).strip().partition("\n")[0],
            )
            return Reach([p.name for p in self._network.get_parameters()], [], [])

    def takes(self, record: Record) -> bool:
        """Say whether ``trainable=`` lets the step train a parameter."""
        return self._only is None or id(record.parameter) in self._only

    def _tell(self, routes: Hashable, found: Reach, wanted: set[str]) -> None:
        """Name in the log what is wanted and gets no gradient, each once."""
        fresh = {name for name in wanted if (routes, name) not in self._told}
        self._told.update((routes, name) for name in fresh)
        lost = [name for name in found.unreached if name in fresh]
        if lost:
            logger.warning(
                "no gradient reaches %s, left out of the optimizer: %s",
                count(len(lost), "parameter"),
                few(lost),
            )
        unseen = [name for name in found.unseen if name in fresh]
        if unseen:
            logger.warning("no gradient was seen at %s; they stay in the optimizer", few(unseen))

    def _nothing_left(self, records: Sequence[Record], unreached: int) -> NothingLeftError:
        """Say of all parameters that could train why none of them does."""
        design = [r for r in records if r.can_train]
        claimed = [r for r in design if r.claims]
        rules = dict.fromkeys(claim.patterns for r in claimed for claim in r.claims)
        off = [r for r in design if not r.claims and not r.parameter.requires_grad]
        other = [r for r in design if r.trains and not self.takes(r)]
        reasons = [
            f"{len(claimed)} frozen by {'; '.join(rules)}" if claimed else "",
            f"{len(off)} with requires_grad False" if off else "",
            f"{len(other)} outside trainable=" if other else "",
            f"{unreached} that no gradient reaches" if unreached else "",
        ]
        why = ", ".join(filter(None, reasons)) or "the network has none that can train"
        remedy = "unfreeze some"
        if other and not claimed and not off:
            remedy = "widen trainable="
        elif unreached:
            remedy = "take a stop away with mg.unwrap, or give unreached='allow'"
        return NothingLeftError(
            f"nothing is left to train of {count(len(design), 'parameter')}: {why}; {remedy}"
        )
