"""Records what PyTorch gives for the small samples of every operator that it has too, for
tests/python/test_operators.py.

Run where PyTorch and Facula can both be imported: python tests/golden/record_operators.py
Each line: {"op", "sample", "dtype", "results": [{"shape", "dtype", "values"}]}; "dtype" is that of the
inputs: float64, and integers and bool where the operator takes them.
"""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.operators import SMALL, cases, is_real_tensor, largest, literal, numpy_arguments  # noqa: E402


def functions(base):
    """What PyTorch may call it, best guess first."""
    for module, prefix in (
        (torch.nn.functional, ""),
        (torch, ""),
        (torch.linalg, "linalg_"),
        (torch.fft, "fft_"),
        (torch.special, "special_"),
        (torch.Tensor, ""),
    ):
        if base.startswith(prefix) and hasattr(module, base[len(prefix) :]):
            yield getattr(module, base[len(prefix) :])


def attempt(f, args):
    """By name where the names agree: `input` is PyTorch's other name of self."""
    renamed = {"input" if k == "self" else k: v for k, v in args.items()}
    first = list(args.values())[:1]
    for make in (
        lambda: f(**renamed),
        lambda: f(**args),
        lambda: f(*first, **dict(list(args.items())[1:])),
        lambda: f(*args.values()),
    ):
        try:
            return make()
        except (TypeError, AttributeError):
            continue
    raise TypeError


EXTRA = ("int64", "uint8", "bool")


def arguments(case, number, dtype):
    sample, args = case.samples[number], {}
    for name, x in numpy_arguments(case, number, dtype).items():
        if sample[name]["kind"] == "literal":
            args[name] = literal(x, torch)
        elif sample[name]["kind"] == "tensor":
            args[name] = torch.tensor(x)
        else:
            args[name] = [torch.tensor(y) for y in x]
    return args


def recorded(t):
    t = t.detach().resolve_conj()
    flat = torch.view_as_real(t).reshape(-1) if t.is_complex() else t.reshape(-1)
    return {"shape": list(t.shape), "dtype": str(t.dtype).split(".")[1], "values": flat.tolist()}


def answer(case, number, dtype):
    """The results of the first function that takes the arguments, or None."""
    args = arguments(case, number, dtype)
    for f in functions(case.base):
        try:
            r = attempt(f, args)
        except (TypeError, RuntimeError, IndexError, ValueError):
            continue
        r = list(r) if isinstance(r, (tuple, list)) else [r]
        if all(isinstance(t, torch.Tensor) for t in r):
            return [recorded(t) for t in r]
    return None


def record():
    for case in cases():
        unsure = case.base.startswith("empty") or case.base in ("T", "mT", "real", "detach")
        if case.random or case.writes or unsure:
            continue
        main = "float64" if "float64" in case.dtypes else case.dtypes[-1]
        for number, sample in enumerate(case.samples):
            if largest(sample) > SMALL:
                continue
            free = any(is_real_tensor(a) for a in sample.values())
            for dtype in (main, *(d for d in EXTRA if free and d in case.dtypes and d != main)):
                if (results := answer(case, number, dtype)) is not None:
                    yield {"op": case.name, "sample": number, "dtype": dtype, "results": results}


if __name__ == "__main__":
    rows = []
    for line in record():
        rows.append(json.dumps(line, separators=(",", ":")))
    recording.write("operators.jsonl", "".join(row + "\n" for row in rows))
