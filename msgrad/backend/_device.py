"""The device of a run: chosen by asking what is there, set in the order that MindSpore needs."""

from __future__ import annotations

import logging
import os

import mindspore as ms
from mindspore import communication
from mindspore.device_context import ascend

from msgrad.backend._execution import DRY_RUN
from msgrad.errors import ArgumentError, ArgumentTypeError, DeviceError

_LOG = logging.getLogger("msgrad")
_TARGETS = ("auto", "Ascend", "CPU")
_MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}
_JIT_LEVELS = ("O0", "O1")
# MS_ROLE is set by msrun and serves every target, the others start Ascend processes or MPI ranks.
_LAUNCHERS = ("MS_ROLE", "RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH", "OMPI_COMM_WORLD_SIZE")


def use_device(
    target: str = "auto",
    *,
    device_id: int | None = None,
    mode: str = "graph",
    jit_level: str | None = None,
    distributed: bool | str = False,
    fallback: bool = False,
) -> str:
    """Choose the device of this process, set the mode, and join the other processes if asked.

    Call it first, before any operator, weight or dataset: MindSpore fixes the device with the first
    operator. A second call with the same choice changes nothing. Why the CPU was taken instead of
    Ascend is logged as a warning of the logger "msgrad".

    Args:
        target: "Ascend", "CPU", or "auto": Ascend where it can be used, else the CPU. Ascend can be
            used where MindSpore's plugin loads and a device is visible, or in a dry run
            (the environment variable MS_SIMULATION_LEVEL is set).
        device_id: Number of the Ascend device, from 0; None lets MindSpore choose, which under
            ``msrun`` gives each process its own. The CPU has one device and ignores it.
        mode: "graph" or "pynative".
        jit_level: Level of the graph compiler, "O0" or "O1"; None leaves MindSpore's default.
        distributed: True starts the communication between processes and sets data parallel
            training with averaged gradients, "auto" does so only under a launcher (``msrun``). It
            also lets strategy files, which need sharding, name the frozen weights too.
        fallback: Run on the CPU where Ascend was asked for and cannot be used.

    Returns:
        The device that was taken, "Ascend" or "CPU".

    Raises:
        DeviceError: Ascend cannot be used, the process runs on another device already, or
            ``distributed=True`` without a launcher.
        ArgumentError: An argument has none of the values above.
        ArgumentTypeError: ``device_id`` is no integer.

    Examples:
        >>> import msgrad as mg
        >>> mg.use_device("CPU")
        'CPU'
    """
    _check(target, device_id, mode, jit_level, distributed)
    chosen = _choose(target, fallback=fallback)
    launched = _joins(chosen, distributed)
    _set(chosen, device_id)
    ms.set_context(mode=_MODES[mode])
    if jit_level is not None:
        # The only switch for a whole process in 2.7 to 2.10; those of mindspore.jit reach no Cell.
        ms.set_context(jit_config={"jit_level": jit_level})
    if launched:
        _join()
    return chosen


def _check(
    target: object, device_id: object, mode: object, jit_level: object, distributed: object
) -> None:
    for name, value, known in (("target", target, _TARGETS), ("mode", mode, _MODES)):
        if value not in known:
            names = ", ".join(map(repr, known))
            raise ArgumentError(f"{name} {value!r} is none of {names}; give one of these")
    if jit_level is not None and jit_level not in _JIT_LEVELS:
        why = ", MindSpore gives up O2 and GE" if jit_level == "O2" else ""
        raise ArgumentError(
            f"jit_level {jit_level!r} is none of 'O0', 'O1'{why}; give one of these"
        )
    if not isinstance(distributed, bool) and distributed != "auto":
        raise ArgumentError(f"distributed {distributed!r} is none of True, False, 'auto'; give one")
    if device_id is None:
        return
    if isinstance(device_id, bool) or not isinstance(device_id, int):
        raise ArgumentTypeError(f"device_id {device_id!r} is no integer; give 0 or more, or None")
    if device_id < 0:
        raise ArgumentError(f"device_id {device_id} is negative; give 0 or more, or None")


def _choose(target: str, *, fallback: bool) -> str:
    """Say which target is taken, without setting it: a failed `set_device` leaves traces."""
    if target == "CPU":
        return "CPU"
    obstacle = why_not_ascend()
    if obstacle is None:
        return "Ascend"
    fact, remedy = obstacle
    if target == "Ascend" and not fallback:
        raise DeviceError(
            f"target 'Ascend' cannot be used, {fact}; {remedy}, or run on the CPU with "
            "fallback=True or target='auto'"
        )
    _LOG.warning("target %r takes the CPU, %s", target, fact)
    return "CPU"


def why_not_ascend() -> tuple[str, str] | None:
    """Say why Ascend cannot be used and what cures that; None where it can."""
    if not _ascend_loads():
        return (
            f"MindSpore {ms.__version__} does not load its Ascend plugin",
            "install CANN and source its set_env.sh",
        )
    # device_count raises where no plugin loads, so it is asked second; a dry run needs no device.
    if not os.environ.get(DRY_RUN) and ascend.device_count() == 0:
        return (
            "CANN is installed but 0 Ascend devices are visible",
            "look at npu-smi info and ASCEND_RT_VISIBLE_DEVICES",
        )
    return None


def _ascend_loads() -> bool:
    # MindSpore answers a no with four lines of warnings, which say the same as our one
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return ascend.is_available()
    finally:
        logging.disable(disabled)


def _joins(chosen: str, distributed: bool | str) -> bool:
    """Say whether this process joins others; `init` without a launcher ends in a crash."""
    if not distributed:
        return False
    if os.environ.get(DRY_RUN):
        launched = chosen == "Ascend" and "RANK_SIZE" in os.environ
        needs = f"a dry run ({DRY_RUN}) needs Ascend, RANK_SIZE and RANK_ID"
    else:
        launched = any(os.environ.get(name) for name in _LAUNCHERS)
        needs = f"none of {', '.join(_LAUNCHERS)} is set"
    if distributed is True and not launched:
        raise DeviceError(
            f"distributed True needs a launcher, {needs}; start it with msrun --worker_num=2 "
            "--local_worker_num=2 train.py, or give distributed='auto'"
        )
    return launched


def _set(chosen: str, device_id: int | None) -> None:
    current = ms.get_current_device()
    if chosen == "CPU":
        device_id = None
    elif device_id is not None and not os.environ.get(DRY_RUN):
        _check_count(device_id, ascend.device_count())
    same = current.device_target == chosen and device_id in (None, current.device_id)
    if ms.hal.is_initialized(current.device_target):
        # set_device would raise now, even for the device that is running.
        if not same:
            raise _too_late(chosen, device_id, f"{current.device_target} {current.device_id}")
        return
    try:
        ms.set_device(chosen, device_id)
    except RuntimeError as error:
        # An earlier set_device is visible in no other way.
        reason = str(error).splitlines()[0]
        raise _too_late(chosen, device_id, f"MindSpore says: {reason}") from error


def _check_count(device_id: int, count: int) -> None:
    if device_id >= count:
        raise DeviceError(
            f"device_id {device_id} does not exist, {count} Ascend devices are visible; "
            f"give 0 to {count - 1}"
        )


def _too_late(chosen: str, device_id: int | None, fact: str) -> DeviceError:
    asked = chosen if device_id is None else f"{chosen} {device_id}"
    return DeviceError(
        f"target {asked!r} cannot be set any more, this process has taken its device ({fact}); "
        "call use_device once and first, before any operator or set_device"
    )


def _join() -> None:
    """Start the communication, then data parallel: the other way round is a crash."""
    if not communication.GlobalComm.INITED:
        communication.init()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=True,
        # By default a strategy file, by which sharded weights are put together, has no frozen ones.
        strategy_ckpt_config={"only_trainable_params": False},
    )
