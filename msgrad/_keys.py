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
# What other tools call these keys, or write elsewhere.
MEANT = {
    "learning_rate": "write it under 'optimizer'",
    "lr": "write learning_rate under 'optimizer'",
    "weight_decay": "write it under 'optimizer'",
    "momentum": "write it under 'optimizer'",
    "epochs": "write epoch_size for the run, and epochs in a stage, under 'stages'",
    "device": "write device_target",
    "data_path": "write data_dir",
    "checkpoint": "write ckpt_path",
    "distributed": "write distribute",
    "when": "write it under 'updates', or in an update rule",
}
