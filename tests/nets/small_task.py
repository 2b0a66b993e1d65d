"""A task of two layers on 24 rows, for the tests of runs; alone it takes a second to compile."""

from __future__ import annotations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

TASK_ARGS = {"dead": False, "norm": False}
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(24, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int32)


class Net(nn.Cell):
    """A body and a head, a norm between them; with `dead` no gradient gets to the body."""

    def __init__(self, dead=False, norm=False):
        super().__init__()
        self.body = nn.Dense(4, 6)
        self.norm = nn.BatchNorm1d(6) if norm else ops.tanh
        self.head = nn.Dense(6, 2)
        self.dead = dead

    def construct(self, x):
        y = self.norm(self.body(x))
        return self.head(ops.stop_gradient(y) if self.dead else y)


def network(config):
    return Net(**config.task_args)


def loss():
    return nn.CrossEntropyLoss()


def datasets(config):
    if config.data_dir:
        config.data_folder()
    rows = ds.NumpySlicesDataset((ROWS, LABELS), ["x", "y"], shuffle=True)
    held_out = ds.NumpySlicesDataset((ROWS, LABELS), ["x", "y"], shuffle=False).batch(10)
    return rows.batch(config.batch_size, drop_remainder=True), held_out


def inputs(config):
    return ops.zeros((config.batch_size, 4)), ops.zeros(config.batch_size, ms.int32)


def body_loss(net):
    loss_fn = nn.CrossEntropyLoss()

    def of_batch(x, y):
        return loss_fn(net(x), y)

    return of_batch


def head_loss(net):
    def of_batch(x, y):
        return ops.square(net(x)).mean()

    return of_batch
