"""The keys of a config file: those of the run, and those of the plan."""

from __future__ import annotations

RUN_KEYS = (
    "task",
    "name",
    "mode",
    "device_target",
    "device_id",
    "distribute",
    "data_dir",
    "epoch_size",
    "batch_size",
    "ckpt_path",
    "ckpt_save_dir",
    "dataset_sink_mode",
    "seed",
    "jit_level",
    "clip_norm",
    "unreached",
    "loss_scale",
    "optimizer",
    "steps",
    "task_args",
)
PLAN_KEYS = ("plan", "stages", "updates", "audit")
