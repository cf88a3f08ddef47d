"""Records what PyTorch gives for calls and models of tests/quantize, and a checkpoint:

.peer/bin/python tests/golden/record_quantized.py
"""

from __future__ import annotations

import lzma
import pickle
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "quantize"))

import calls  # noqa: E402
import flows  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

SEED, COUNT, MOST = 2026, 6 * len(calls.CALLS), 1500


def recorded():
    with tempfile.TemporaryDirectory() as folder:
        calls.main(SEED, COUNT, f"{folder}/calls.pickle")
        with open(f"{folder}/calls.pickle", "rb") as f:
            results = pickle.load(f)
        flows.main(f"{folder}/flows.npz")
        models = dict(np.load(f"{folder}/flows.npz"))
    kept = {k: r for k, r in results.items() if r[1][0] == "error" or r[1][1].size <= MOST}
    return {"seed": SEED, "count": COUNT, "calls": kept, "flows": models}


def checkpoint():
    """The state of a quantised network, an input, and what the network makes of it."""
    flows.R.seed(1)
    model, xs = flows.drawn(flows.Net()).eval(), [flows.numbers(2, 1, 14, 14) for _ in range(2)]
    model = flows.fuse_modules(model, flows.PAIRS)
    model.qconfig = flows.get_default_qconfig("x86")
    prepared = flows.prepare(model)
    for x in xs:
        prepared(x)
    q = flows.convert(prepared)
    return {"state": q.state_dict(), "x": xs[0], "y": q(xs[0]), "scale": q.fc.scale}


if __name__ == "__main__":
    with lzma.open(HERE / "quantized.pickle.xz", "wb") as f:
        pickle.dump(recorded(), f)
    torch.save(checkpoint(), HERE / "quantized.pt")
