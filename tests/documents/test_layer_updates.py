"""The example of the three layers prints what a NumPy loop computes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {"fc1": (2, 1), "fc2": (3, 2), "fc3": (1, 3)}
FUNCTIONS = {
    "fc1": lambda w: w + 1e-3 * w,
    "fc2": lambda w: 1e-2 * w,
    "fc3": lambda w: w - 1e-1 * w,
}
X = np.linspace(-1, 1, 4)[:, None]
Y = X**2
RATE = 0.1
BLOCK = re.compile(r"(before|after) (\S+ \S+?)(?:, loss (\S+))?\n((?:  fc\d .+\n)+)")


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "layer_updates.py"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def blocks(output: str) -> list[tuple[dict[str, np.ndarray], float | None]]:
    """Return the printed vectors and the loss of each block."""
    found = []
    for _, _, loss, lines in BLOCK.findall(output):
        rows = [line.split() for line in lines.splitlines()]
        vectors = {row[0]: np.array(row[1:], float) for row in rows}
        found.append((vectors, float(loss) if loss else None))
    return found


def changed(vectors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {layer: FUNCTIONS[layer](vector) for layer, vector in vectors.items()}


def split(vectors: dict[str, np.ndarray], layer: str) -> tuple[np.ndarray, np.ndarray]:
    size = int(np.prod(SHAPES[layer]))
    return vectors[layer][:size].reshape(SHAPES[layer]), vectors[layer][size:]


def gradient(vectors: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray):
    """The mean squared error of the network and its gradient, by hand."""
    (w1, b1), (w2, b2), (w3, b3) = (split(vectors, layer) for layer in SHAPES)
    h1 = np.tanh(x @ w1.T + b1)
    h2 = np.tanh(h1 @ w2.T + b2)
    error = h2 @ w3.T + b3 - y
    d3 = 2 * error / len(x)
    d2 = (d3 @ w3) * (1 - h2**2)
    d1 = (d2 @ w2) * (1 - h1**2)
    pairs = {"fc1": (d1.T @ x, d1), "fc2": (d2.T @ h1, d2), "fc3": (d3.T @ h2, d3)}
    grads = {n: np.concatenate([w.ravel(), d.sum(0)]) for n, (w, d) in pairs.items()}
    return float(np.mean(error**2)), grads


def step(vectors: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, when: str):
    if when == "before_forward":
        vectors = changed(vectors)
    loss, grads = gradient(vectors, x, y)
    if when == "after_gradient":
        vectors = changed(vectors)
    vectors = {n: v - RATE * grads[n] for n, v in vectors.items()}
    return (changed(vectors) if when == "after_step" else vectors), loss


RUNS = [
    ("before_forward", "graph"),
    ("after_gradient", "graph"),
    ("after_step", "pynative"),
]


@pytest.mark.parametrize(("when", "mode"), RUNS)
def test_each_printed_vector_is_that_of_a_numpy_loop(when: str, mode: str):
    done = run_example("--set", f"updates.when={when}", f"mode={mode}")
    assert done.returncode == 0, done.stderr
    printed = blocks(done.stdout)
    assert [len(v) for v in printed[0][0].values()] == [4, 9, 4]
    # two for the functions alone, two for each of two steps and of four examples
    assert len(printed) == 2 + 2 * 2 + 2 * 4
    batches = [(X, Y)] * 2 + [(X[i : i + 1], Y[i : i + 1]) for i in range(4)]
    # printed with six decimals
    for layer, vector in changed(printed[0][0]).items():
        np.testing.assert_allclose(printed[1][0][layer], vector, rtol=0, atol=3e-6)
    pairs = zip(printed[2::2], printed[3::2], batches, strict=True)
    for (before, _), (after, loss), (x, y) in pairs:
        expected, expected_loss = step(before, x, y, when)
        np.testing.assert_allclose(float(loss or 0), expected_loss, rtol=0, atol=3e-6)
        for layer, vector in expected.items():
            np.testing.assert_allclose(after[layer], vector, rtol=0, atol=3e-6)
    losses = [float(loss) for loss in done.stdout.splitlines()[-1].split()[4:]]
    assert losses == [loss for _, loss in printed[7::2]]


def test_a_function_that_does_not_exist_is_answered_by_the_nearest():
    done = run_example("--set", "updates.rules.fc1=../tasks/mlp.py:grown")
    assert done.returncode == 1
    assert "'../tasks/mlp.py:grown'" in done.stderr
    assert "did you mean 'grow'?" in done.stderr


def test_a_misspelt_key_is_answered_by_the_nearest():
    done = run_example("--set", "updates.wen=after_step")
    assert done.returncode == 1
    assert "key 'wen' of updates is unknown; did you mean 'when'?" in done.stderr
