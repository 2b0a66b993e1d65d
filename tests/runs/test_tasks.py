"""What the tasks of the ready configs are for: each shows its point in figures."""

from __future__ import annotations

import copy
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

import gan
import msgrad as mg
import resnet
import transfer
from digits import load_digits
from msgrad.runs import build, load_config, train

CONFIGS = Path(__file__).parents[2] / "configs"


def run_of(name, *changes):
    return build(load_config(CONFIGS / f"{name}.yaml", changes))


def last(figures):
    return figures.epochs[-1].figures


# --- the adversarial pair


def generator_gradient(net, loss):
    """The gradient of a loss by the generator's weights, with plain MindSpore."""
    weights = ms.ParameterTuple(net.generator.trainable_params())
    image, noise = Tensor(IMAGE), Tensor(NOISE)
    return [g.asnumpy() for g in ms.grad(loss, None, weights)(image, noise)]


rng = np.random.default_rng(3)
IMAGE = rng.random((4, gan.PIXELS), np.float32)
NOISE = rng.standard_normal((4, gan.NOISE)).astype(np.float32)


@pytest.fixture(scope="module")
def pair():
    """One generator and discriminator, as it is and with the stop of gan_stop.yaml."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(2)
    net = gan.Adversaries()
    stopped = copy.deepcopy(net)
    load_config(CONFIGS / "gan_stop.yaml").plan.apply(stopped)
    return net, stopped


def mean_image_term(net):
    def match(image, noise):
        return gan.PIXELS * ((net(noise).mean(0) - image.mean(0)) ** 2).mean()

    return match


def test_the_stop_leaves_the_generator_the_term_that_needs_no_discriminator_and_no_other(pair):
    net, stopped = pair
    alone = generator_gradient(net, mean_image_term(net))
    left = generator_gradient(stopped, gan.generator_loss(stopped))
    whole = generator_gradient(net, gan.generator_loss(net))
    for one, other in zip(left, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert max(np.abs(a - b).max() for a, b in zip(whole, alone, strict=True)) > 1e-3


def test_the_stop_changes_no_loss_that_the_run_reports(pair):
    net, stopped = pair
    image, noise = Tensor(IMAGE), Tensor(NOISE)
    for loss in (gan.generator_loss, gan.discriminator_loss):
        assert loss(net)(image, noise).asnumpy() == loss(stopped)(image, noise).asnumpy()


@pytest.mark.slow
def test_with_the_stop_the_loss_falls_and_every_noise_becomes_the_same_image():
    short = ("epoch_size=8", "optimizer.learning_rate=0.002")
    found = {name: train(run_of(name, *short)) for name in ("gan_freeze", "gan_stop")}
    for figures in found.values():
        losses = [epoch.losses["generator"] for epoch in figures.epochs]
        assert losses[-1] < 0.6 * losses[0]
    # on this seed 0.9 and 0.12: standard deviation over the noise, of that of real images
    assert last(found["gan_freeze"])["variety"] > 0.5
    assert last(found["gan_stop"])["variety"] < 0.2


# --- transfer


def test_a_half_of_the_digits_is_labelled_from_0():
    (images, labels), _ = load_digits()
    own_images, own_labels = transfer.half((images, labels), "high")
    assert set(own_labels) == set(range(5))
    np.testing.assert_array_equal(own_images, images[labels >= 5])
    np.testing.assert_array_equal(own_labels + 5, labels[labels >= 5])


def test_the_frozen_backbone_of_the_first_run_reads_its_digits_as_before():
    first = run_of("digits_pretrain", "epoch_size=2", "batch_size=100")
    accuracy = last(train(first))["accuracy"]
    assert accuracy > 0.8
    saved = "runs/digits_pretrain/weights.ckpt"
    stages = ("stages.0.epochs=1", "stages.1.epochs=1")
    second = run_of("digits_transfer", "epoch_size=3", "batch_size=100", *stages)
    assert second.config.ckpt_path == saved
    own = second.net.parameters_dict()
    for name, values in ms.load_checkpoint(saved).items():
        np.testing.assert_array_equal(own[name].asnumpy(), values.asnumpy())
    figures = train(second)
    kept = [epoch.figures["accuracy_0_to_4"] for epoch in figures.epochs]
    assert kept[0] == accuracy
    assert figures.epochs[0].figures["accuracy"] > 0.3  # a guess is right in 0.2
    assert set(figures.held) == {"low.weight", "low.bias"}


# --- gradient reversal


@pytest.mark.slow
def test_the_reversed_gradient_helps_to_read_the_digits_that_have_no_labels():
    short = ("epoch_size=8",)
    with_rule, without = (
        last(train(run_of("digits_domain", *short, *more)))
        for more in ((), ("plan=[]", "name=without"))
    )
    # on this seed 0.72 and 0.42
    assert with_rule["accuracy_speckled"] > without["accuracy_speckled"] + 0.1
    assert without["told_apart"] > 0.95 > with_rule["told_apart"]
    assert min(with_rule["accuracy"], without["accuracy"]) > 0.9


# --- ResNet-50


@pytest.fixture(scope="module")
def small():
    return resnet.ResNet([1, 1, 1, 1], width=4)


def test_resnet_50_has_as_many_weights_as_published():
    """25,557,032 for the 1,000 classes of ImageNet: the number of torchvision's documentation."""
    net = resnet.ResNet([3, 4, 6, 3], classes=1000)
    assert sum(p.size for p in net.trainable_params()) == 25_557_032


def test_its_names_are_those_of_the_models_of_mindspore(small):
    names = {p.name for p in small.get_parameters()}
    assert {
        "conv1.weight",
        "bn1.moving_mean",
        "layer1.0.conv1.weight",
        "layer4.0.bn3.gamma",
        "layer2.0.down_sample_layer.0.weight",
        "layer2.0.down_sample_layer.1.beta",
        "end_point.bias",
    } < names


def test_a_backbone_is_loaded_without_the_head_of_other_classes(small):
    other = resnet.ResNet([1, 1, 1, 1], width=4, classes=7)
    before = other.end_point.weight.asnumpy().copy()
    ms.save_checkpoint(small, "small.ckpt")
    resnet.load_backbone(other, "small.ckpt")
    np.testing.assert_array_equal(other.end_point.weight.asnumpy(), before)
    own = small.parameters_dict()
    for name, parameter in other.parameters_dict().items():
        if not name.startswith("end_point"):
            np.testing.assert_array_equal(parameter.asnumpy(), own[name].asnumpy())


def test_a_backbone_that_lacks_a_layer_is_refused(small):
    ms.save_checkpoint(small, "small.ckpt", choice_func=lambda name: "layer4" not in name)
    with pytest.raises(mg.CheckpointError, match=r"does not fit in \d+ weights, first layer4\.0"):
        resnet.load_backbone(resnet.ResNet([1, 1, 1, 1], width=4), "small.ckpt")


def cifar(*changes):
    # the runner fills up the keys of a task
    changes = ("task_args.random_rows=0", *changes)
    return load_config(CONFIGS / "resnet50_cifar10_ascend.yaml", changes)


def test_cifar_10_comes_scaled_normalised_and_labelled(tmp_path):
    """White images of class 3, in the binary format of CIFAR-10: a label and 3,072 bytes each."""
    row = bytes([3]) + bytes([255]) * 3072
    for name in ("data_batch_1", "test_batch"):
        # fewer than 10,000 images MindSpore takes for a damaged file
        (tmp_path / f"{name}.bin").write_bytes(row * 10_000)
    config = cifar("task_args.image_size=40", "batch_size=3", f"data_dir={tmp_path}")
    held_out = resnet.datasets(config)[1]
    image, label = next(held_out.create_tuple_iterator(num_epochs=1))
    assert image.shape == (3, 3, 40, 40)
    assert label.dtype == ms.int32
    assert label.asnumpy().tolist() == [3] * 3
    white = (1 - np.array(resnet.MEAN)) / np.array(resnet.STD)
    np.testing.assert_allclose(image.asnumpy().mean((2, 3))[0], white, rtol=1e-5)
    augmented = resnet.datasets(config)[0]
    assert (augmented.get_dataset_size(), held_out.get_dataset_size()) == (3333, 3334)
    assert next(augmented.create_tuple_iterator(num_epochs=1))[0].shape == (3, 3, 40, 40)


def test_a_task_without_its_data_says_what_to_give():
    config = cifar()
    with pytest.raises(mg.PlanError, match="data_dir is missing, and this task reads one"):
        resnet.datasets(config)
