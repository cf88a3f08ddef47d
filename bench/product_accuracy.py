"""Prints the errors of float32 products by a matrix unit and those of PyTorch.

    python bench/product_accuracy.py --shapes 2000

An error is |result - exact| / (|a| |b|), where the exact product is computed in float64. Shapes and numbers
are drawn from a new seed each time, which is printed, and every product is computed by tiles
(FACULA_PRODUCTS=tiles). Fails if the largest error or the root of the mean square of six products of parts is
above PyTorch's, or if the largest of four products ("high") is above 2e-5.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MOST_OF_HIGH = 2e-5
LONG = 65536  # terms
PEER = """
import sys
import numpy as np
import torch
torch.set_num_threads(2)
data = np.load(sys.argv[1])
names = sorted(n[1:] for n in data.files if n[0] == "a")
products = {n: torch.from_numpy(data["a" + n]) @ torch.from_numpy(data["b" + n]) for n in names}
np.savez(sys.argv[2], **{n: x.numpy() for n, x in products.items()})
"""


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def scaled(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)


def positive(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.abs(rng.standard_normal(shape))


long = positive


def cancelling(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Neighbouring terms cancel but for a thousandth."""
    x = 1 + 1e-3 * rng.standard_normal(shape)
    axis = 1 if len(shape) == 2 else 0
    signs = np.where(np.arange(shape[axis]) % 2, -1.0, 1.0)
    return x * signs[None, :]


def operands(kind: str, rng: np.random.Generator, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    draw = globals()[kind]
    right = positive if kind == "cancelling" else draw
    a, b = draw(rng, m, k), right(rng, k, n)
    if kind == "cancelling":
        b = 1 + 1e-3 * (b - 1)
    return a.astype(np.float32), b.astype(np.float32)


def errors(a: np.ndarray, b: np.ndarray, result: np.ndarray) -> np.ndarray:
    wide, other = a.astype(np.float64), b.astype(np.float64)
    return np.abs(result - wide @ other) / np.maximum(np.abs(wide) @ np.abs(other), 1e-300)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--peer", default=os.environ.get("FACULA_PEER", ".peer/bin/python"), metavar="PYTHON")
    args = parser.parse_args()
    os.environ["FACULA_PRODUCTS"] = "tiles"
    import facula

    rng = np.random.default_rng(args.seed)
    print(f"# Errors of products by tiles beside PyTorch's\n\nseed {args.seed}, {args.shapes} shapes\n")
    print("| | shapes | six: largest | rms | PyTorch: largest | rms | four: largest |")
    print("|---|" + "---:|" * 6)
    failed = False
    for kind in ("normal", "scaled", "positive", "cancelling", "long"):
        count = 3 if kind == "long" else max(1, args.shapes // 4)
        sizes = [tuple(int(2 ** rng.uniform(5, 8)) for _ in "mn") for _ in range(count)]
        terms = [LONG if kind == "long" else int(2 ** rng.uniform(5, 11.5)) for _ in range(count)]
        pairs = [operands(kind, rng, m, k, n) for (m, n), k in zip(sizes, terms, strict=True)]
        with tempfile.TemporaryDirectory() as folder:
            inputs, outputs = Path(folder) / "in.npz", Path(folder) / "out.npz"
            np.savez(
                inputs, **{f"{s}{q}": x for q, p in enumerate(pairs) for s, x in zip("ab", p, strict=True)}
            )
            subprocess.run([args.peer, "-c", PEER, inputs, outputs], check=True)
            theirs = np.load(outputs)
            measured: dict[str, list[np.ndarray]] = {"highest": [], "high": [], "peer": []}
            for q, (a, b) in enumerate(pairs):
                for precision in ("highest", "high"):
                    facula.set_float32_matmul_precision(precision)
                    result = (facula.from_numpy(a) @ facula.from_numpy(b)).numpy()
                    measured[precision].append(errors(a, b, result).ravel())
                measured["peer"].append(errors(a, b, theirs[str(q)]).ravel())
        all_of = {name: np.concatenate(e) for name, e in measured.items()}
        most = {name: float(e.max()) for name, e in all_of.items()}
        rms = {name: float(np.sqrt((e**2).mean())) for name, e in all_of.items()}
        bad = most["highest"] > most["peer"] or rms["highest"] > rms["peer"] or most["high"] > MOST_OF_HIGH
        failed |= bad
        name = f"positive, {LONG} terms" if kind == "long" else kind
        print(
            f"| {name} | {count} | {most['highest']:.2g} | {rms['highest']:.2g} | {most['peer']:.2g} "
            f"| {rms['peer']:.2g} | {most['high']:.2g} |{' **missed**' if bad else ''}",
            flush=True,
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
