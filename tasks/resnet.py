"""ResNet-50 on CIFAR-10, with the parameter names of MindSpore's own models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import HeNormal
from mindspore.dataset import transforms, vision

import msgrad as mg

if TYPE_CHECKING:
    from msgrad.runs import Config

EXPANSION = 4
FULL = 255.0
# Of the 50,000 images, per channel, as fractions of full intensity.
MEAN = [0.4914, 0.4822, 0.4465]
STD = [0.2470, 0.2435, 0.2616]


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution that keeps the size of the image, but for the stride."""
    return nn.Conv2d(
        inputs,
        outputs,
        size,
        stride,
        pad_mode="pad",
        padding=size // 2,
        weight_init=HeNormal(mode="fan_out", nonlinearity="relu"),
    )


class Bottleneck(nn.Cell):
    """Three convolutions beside a shortcut.

    Args:
        inputs: Channels that come in.
        width: Channels inside; four times as many go out.
        stride: That of the middle convolution and of the shortcut.

    Inputs:
        - **x** (Tensor) - ``(N, inputs, H, W)``, float.

    Outputs:
        Tensor, ``(N, 4 · width, H / stride, W / stride)``.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, outputs, 1)
        # the branch begins at 0, so that the block begins as its shortcut (Goyal et al., 2017)
        self.bn3 = nn.BatchNorm2d(outputs, gamma_init="zeros")
        self.relu = nn.ReLU()
        self.down_sample = stride != 1 or inputs != outputs
        if self.down_sample:
            self.down_sample_layer = nn.SequentialCell(
                conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def construct(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x
        if self.down_sample:
            shortcut = self.down_sample_layer(x)
        return self.relu(out + shortcut)


class ResNet(nn.Cell):
    """A residual network of four layers of bottlenecks; ``[3, 4, 6, 3]`` of them is ResNet-50.

    Args:
        blocks: Bottlenecks in each layer.
        width: Channels inside the bottlenecks of the first layer; each layer doubles them.
        classes: Number of classes.

    Inputs:
        - **image** (Tensor) - ``(N, 3, H, W)``, float32, normalised.

    Outputs:
        Tensor, the scores of the classes, ``(N, classes)``, float32.

    References:
        K. He, X. Zhang, S. Ren, J. Sun (2016). Deep Residual Learning for Image Recognition.
        arXiv:1512.03385.
    """

    def __init__(self, blocks: list[int], width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = conv(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.max_pool = nn.MaxPool2d(3, 2, pad_mode="same")
        inputs = width
        for number, count in enumerate(blocks):
            inside = width * 2**number
            layer = _layer(inputs, inside, count, stride=1 if number == 0 else 2)
            setattr(self, f"layer{number + 1}", layer)
            inputs = EXPANSION * inside
        self.flatten = nn.Flatten()
        self.end_point = nn.Dense(inputs, classes)

    def construct(self, image: Tensor) -> Tensor:
        """Score the classes of a batch of images."""
        x = self.max_pool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.end_point(self.flatten(x.mean((2, 3))))


def _layer(inputs: int, width: int, count: int, stride: int) -> nn.SequentialCell:
    first = Bottleneck(inputs, width, stride)
    others = (Bottleneck(EXPANSION * width, width, 1) for _ in range(count - 1))
    return nn.SequentialCell(first, *others)


# --- the task: what a config with `task: ../tasks/resnet.py` trains

TASK_ARGS = {
    "blocks": [3, 4, 6, 3],
    "width": 64,
    "image_size": 224,
    "backbone": None,  # a checkpoint of ResNet-50: all of it but the head is loaded
    "random_rows": 0,  # so many random images instead of CIFAR-10, to try the run without its files
}
HEAD = "end_point."


def network(config: Config) -> ResNet:
    """Return a network with its first weights, and the backbone of a checkpoint if one is given."""
    args = config.task_args
    net = ResNet(args["blocks"], args["width"])
    if args["backbone"]:
        load_backbone(net, args["backbone"])
    return net


def load_backbone(net: ResNet, path: str) -> None:
    """Load all but the head, in place; a head of other classes may be in the file.

    Raises:
        CheckpointError: A weight of the backbone is missing in the file, or has another shape.
    """
    report = mg.load_weights(net, path, strict=False)
    unfit = [text for text in (*report.missing, *report.other_shape) if not text.startswith(HEAD)]
    if unfit:
        raise mg.CheckpointError(
            f"backbone {path!r} does not fit in {len(unfit)} weights, first {unfit[0]}; "
            "give a checkpoint of this ResNet"
        )


def loss() -> nn.Cell:
    """Return the loss of the scores and the labels."""
    return nn.CrossEntropyLoss(label_smoothing=0.1)  # as MindSpore's own ResNet-50 is trained


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return the batches to train on, and those held out."""
    if config.task_args["random_rows"]:
        return _random_images(config, shuffle=True), _random_images(config, shuffle=False)
    folder = str(config.data_folder())
    train = ds.Cifar10Dataset(folder, "train", shuffle=True, **config.shard)
    held_out = ds.Cifar10Dataset(folder, "test", shuffle=False)
    return _batches(train, config, augment=True), _batches(held_out, config, augment=False)


def _batches(rows: ds.Dataset, config: Config, *, augment: bool) -> ds.Dataset:
    size = config.task_args["image_size"]
    changes: list[Any] = []
    if augment:
        changes = [vision.RandomCrop((32, 32), (4, 4, 4, 4)), vision.RandomHorizontalFlip()]
    changes += [
        vision.Resize((size, size)),
        vision.Rescale(1 / FULL, 0.0),
        vision.Normalize(MEAN, STD),
        vision.HWC2CHW(),
    ]
    rows = rows.map(changes, "image").map(transforms.TypeCast(ms.int32), "label")
    # one graph serves all batches that are whole
    return rows.batch(config.batch_size, drop_remainder=augment)


def _random_images(config: Config, *, shuffle: bool) -> ds.Dataset:
    count, size = config.task_args["random_rows"], config.task_args["image_size"]
    numbers = np.random.RandomState(config.seed)
    images = numbers.standard_normal((count, 3, size, size)).astype(np.float32)
    labels = numbers.randint(0, 10, count).astype(np.int32)
    rows = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=shuffle)
    return rows.batch(config.batch_size, drop_remainder=shuffle)


def inputs(config: Config) -> tuple[Tensor, Tensor]:
    """Return one batch without a file."""
    rows, size = config.batch_size, config.task_args["image_size"]
    return ops.zeros((rows, 3, size, size)), ops.zeros(rows, ms.int32)
