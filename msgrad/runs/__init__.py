"""One YAML file, one run: config, task, network, training, evaluation, dry run."""

from msgrad.runs._audit import StepAudit, audits, first_batch
from msgrad.runs._build import Run, build
from msgrad.runs._config import Config, load_config
from msgrad.runs._dry_run import DryRun, Fate, StageFates, TakenBy, dry_run
from msgrad.runs._evaluate import evaluate
from msgrad.runs._keys import OptimizerKeys, StepKeys
from msgrad.runs._results import Epoch, RunResult
from msgrad.runs._task import Task, location_in_task
from msgrad.runs._train import train

# fmt: off
__all__ = [
    "Config", "DryRun", "Epoch", "Fate", "OptimizerKeys", "Run", "RunResult", "StageFates",
    "StepAudit", "StepKeys", "TakenBy", "Task", "audits", "build", "dry_run", "evaluate",
    "first_batch", "load_config", "location_in_task", "train"
]
# fmt: on
