"""Makes digits.npz, once, from the copy of the UCI set that scikit-learn ships.

It is a requirement of this file alone: pip install scikit-learn
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":
    digits = load_digits()
    np.savez_compressed(
        Path(__file__).with_name("digits.npz"),
        image=digits.images.astype(np.uint8),
        label=digits.target.astype(np.uint8),
    )
