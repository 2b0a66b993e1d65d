"""Going on with a saved run: weights, optimizer state, claims, rates, position and seeds."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msgrad._text import cut, few
from msgrad.backend import alike
from msgrad.checkpoints import read_file, write_file
from msgrad.errors import CheckpointError
from msgrad.freezing import BY_FLAG, Claim, Record, claims_changed
from msgrad.network import fingerprint_of, write
from msgrad.training._stage_cells import StageCells
from msgrad.training._trainable import NothingLeftError
from msgrad.updates import MovingAverage

logger = logging.getLogger("msgrad")

_RATE, _MADE = "msgrad.rate.", "msgrad.rate_made."


def save_run(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    stages: StageCells,
    position: Sequence[int],
) -> None:
    """Write everything that a later run needs to go on from here.

    Raises:
        CheckpointError: A weight and a state have one name, or the file cannot be written.
    """
    weights = {r.parameter.name: r.parameter for r in records}
    state = {**stages.carry.latest, **stages.current.keeping.state}
    both = sorted(weights.keys() & state.keys())
    if both:
        raise CheckpointError(
            f"{both[0]!r} is the name of a weight and of optimizer state; rename the parameter"
        )
    made = stages.carry.rates_made()
    rates = {_RATE + name: rate for name, (rate, _) in made.items()}
    rates |= {_MADE + name: Tensor(first) for name, (_, first) in made.items()}
    meta = {
        **claims_to_meta(records),
        "position": list(position),
        "seeds": seeds_to_meta(),
        "rates": list(made),
        "trained": stages.trained,
        "settings": stages.settings,
    }
    write_file(path, {**weights, **state, **rates}, meta)


def load_run(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    stages: StageCells,
    enter: Callable[[], None],
) -> list[int]:
    """Bring back what `save_run` wrote; nothing is changed where the file does not fit."""
    values, meta = alike("the save", lambda: _read(path, records), lambda read: _facts(*read))
    stages.ask(meta["settings"])
    claims_from_meta(records, meta)
    claims_changed()
    for record in records:
        value = values.pop(record.parameter.name, None)
        if value is not None:
            write(record.parameter, value)
    # with all frozen it stays where it is
    with suppress(NothingLeftError):
        enter()
    rates = {n: (values.pop(_RATE + n), values.pop(_MADE + n)) for n in meta["rates"]}
    stages.carry.take(values)
    stages.forget(values)
    stages.carry.take_rates(rates)
    keeping = stages.current.keeping
    stages.carry.enter(keeping)
    stages.resume(meta["trained"])
    for name, rate in keeping.rates.items():
        value = rates[name][0] if name in rates else None
        if value is not None and value.shape == rate.shape:
            write(rate, value)
    stages.carry.settle()
    for update in stages.updates:
        _restart_missing(update, values.keys())
    seeds_from_meta(meta["seeds"])
    return meta["position"]


def _restart_missing(update: nn.Cell, saved: Collection[str]) -> None:
    """Let an update begin here of which the save knows nothing."""
    if not {p.name for p in update.get_parameters()}.isdisjoint(saved):
        return
    if isinstance(update, MovingAverage):
        update.restart()
    logger.warning(
        "the save has no state of the %s over %s, which begins anew at the loaded weights",
        type(update).__name__,
        few(update.names),
    )


def _read(path: str | os.PathLike[str], records: Sequence[Record]) -> tuple[dict, dict]:
    values, meta = read_file(path)
    check_values(records, values, meta)
    check_claims(records, meta)
    return values, meta


def _facts(values: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, list[str]]:
    return {"step": [str(meta["position"][0])], "file": [fingerprint_of(values)[:16]]}


def claims_to_meta(records: Sequence[Record]) -> dict[str, Any]:
    """Describe the flags and claims of all parameters."""
    claims: list[Claim] = list(dict.fromkeys(c for r in records for c in r.claims))
    return {
        "claims": [
            {"patterns": c.patterns, "statistics": c.statistics, "dropout": c.dropout}
            for c in claims
        ],
        "parameters": {
            r.parameter.name: {
                "flag": bool(r.parameter.requires_grad),
                "first": r.flag_at_first,
                "base": r.base,
                "claims": [claims.index(c) for c in r.claims],
                "moved": r.has_moved,
                "past": sorted(r.past),
            }
            for r in records
        },
    }


def claims_from_meta(records: Sequence[Record], meta: Mapping[str, Any]) -> None:
    """Make flags and claims those of the file; claims that stand already and say the same are kept.

    So a `Freeze` that the script made again before loading still undoes its own claim.
    """
    saved = meta["parameters"]
    present: dict[tuple[Any, ...], list[Claim]] = {}
    for claim in dict.fromkeys(c for r in records for c in r.claims):
        held = tuple(r.parameter.name for r in records if claim in r.claims)
        key = (claim.patterns, claim.statistics, claim.dropout, held)
        present.setdefault(key, []).append(claim)
    made = []
    for number, text in enumerate(meta["claims"]):
        held = tuple(
            r.parameter.name for r in records if number in saved[r.parameter.name]["claims"]
        )
        same = present.get((text["patterns"], text["statistics"], text["dropout"], held))
        made.append(same.pop(0) if same else _loaded(text))
    left = [claim for same in present.values() for claim in same]
    trained = {r.parameter.name for r in records if saved[r.parameter.name]["flag"]}
    for claim in left:
        held = {r.parameter.name for r in records if claim in r.claims}
        # of weights that the file holds too it goes on to stand, and can be undone
        claim.undone = claim.of_stage or bool(held & trained)
    for record in records:
        state = saved[record.parameter.name]
        record.flag_at_first, record.base = state["first"], state["base"]
        kept = [c for c in record.claims if c in left and not c.undone]
        record.claims = [*(made[number] for number in state["claims"]), *kept]
        record.parameter.requires_grad = state["flag"]
        record.has_moved |= state["moved"]
        record.past.update(state["past"])


def check_claims(records: Sequence[Record], meta: Mapping[str, Any]) -> None:
    """Refuse to set free what this script holds, and the one that saved never held.

    Raises:
        CheckpointError: The file trains a weight that a freeze of the script, or its flag, holds.
    """
    saved = meta["parameters"]
    for record in records:
        state = saved[record.parameter.name]
        own = [c.patterns for c in record.claims if not c.of_stage and not c.loaded]
        if record.held_by_flag:
            own = [BY_FLAG]
        new = [text for text in own if text not in state["past"]]
        if state["flag"] and new:
            raise CheckpointError(
                f"{new[0]} holds {record.parameter.name}, which the save trains; nothing was "
                "loaded: undo it before the load to go on as saved, or repeat it after the load"
            )


def _loaded(text: Mapping[str, Any]) -> Claim:
    claim = Claim(**text)
    claim.loaded = True
    return claim


def check_values(
    records: Sequence[Record], values: Mapping[str, Tensor], meta: Mapping[str, Any]
) -> None:
    """Refuse a file whose weights are not exactly those of the network.

    Raises:
        CheckpointError: A weight is missing, unknown, or has another shape or dtype; all
            differences are listed.
    """
    own = {r.parameter.name: r.parameter for r in records}
    saved = set(meta["parameters"])
    wrong = [f"missing in the file: {name}" for name in own if name not in saved]
    wrong += [f"unknown to the network: {name}" for name in meta["parameters"] if name not in own]
    for name, parameter in own.items():
        value = values.get(name)
        if name in saved and value is None and parameter.size:
            wrong.append(f"missing in the file: {name}")
        elif value is not None and (value.shape, value.dtype) != (parameter.shape, parameter.dtype):
            wrong.append(
                f"{name}: {value.dtype} {value.shape} in the file, "
                f"{parameter.dtype} {parameter.shape} here"
            )
    if wrong:
        head = "the file does not fit the network; nothing was loaded:"
        raise CheckpointError("\n".join([head, *cut(wrong, 10)]), differences=wrong)


def seeds_to_meta() -> dict[str, Any]:
    """Describe the seeds of MindSpore and the stream of NumPy's global generator."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "mindspore": ms.get_seed(),
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
    }


def seeds_from_meta(meta: Mapping[str, Any]) -> None:
    """Bring the seeds back."""
    if meta["mindspore"] is not None:
        ms.set_seed(meta["mindspore"])
    kind, keys, position, has_gauss, gauss = meta["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, gauss))
