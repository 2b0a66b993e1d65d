"""Evaluating the network of a run."""

from __future__ import annotations

from mindspore import nn
from mindspore.dataset import Dataset

from msgrad.runs._build import Run


def evaluate(run: Run, dataset: Dataset) -> dict[str, float]:
    """Evaluate the network of a run on batches, as its task does, or by the accuracy.

    Args:
        run: The run; its network is in training again afterwards if it was before.
        dataset: Batches of inputs, the last being the label.

    Returns:
        Figures by name.

    Examples:
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from mindspore import dataset
        >>> from msgrad.runs import build, evaluate, load_config
        >>> _ = Path("task.py").write_text('''
        ... from mindspore import nn
        ... def network(config):
        ...     return nn.Dense(2, 3, weight_init="zeros", bias_init="zeros")
        ... def loss():
        ...     return nn.CrossEntropyLoss()
        ... def datasets(config):
        ...     raise NotImplementedError
        ... ''')
        >>> _ = Path("run.yaml").write_text("task: task.py")
        >>> rows = np.ones((4, 2), np.float32), np.array([0, 0, 0, 1], np.int32)
        >>> held_out = dataset.NumpySlicesDataset(rows).batch(2)
        >>> evaluate(build(load_config("run.yaml")), held_out)
        {'accuracy': 0.75}
    """
    training = run.net.training
    run.net.set_train(False)
    try:
        if run.task.has("evaluate"):
            return {k: float(v) for k, v in run.task.call("evaluate", run.net, dataset).items()}
        return {"accuracy": _accuracy(run.net, dataset)}
    finally:
        run.net.set_train(training)


def _accuracy(net: nn.Cell, dataset: Dataset) -> float:
    """Return the fraction of rows whose highest score is that of their label."""
    right = rows = 0
    for *inputs, label in dataset.create_tuple_iterator(num_epochs=1):
        right += int((net(*inputs).argmax(axis=-1) == label).sum().asnumpy())
        rows += label.size
    return right / rows if rows else 0.0
