"""Finds calls that are slower than PyTorch's, in addition to the rows of `make bench`.

  FACULA_PEER=.peer/bin/python python bench/sweep.py [--only PATTERN] [--above 1.3] [--threads N] [--dtypes D]

Some 3,000 calls, each library in its own process with one thread, processor time, the minimum of several
runs: accurate enough on a busy machine to find calls that are several times slower, but no more. With
several threads it measures elapsed time of more runs, which requires an idle machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rows import MATRICES, OF_MATRICES, PROLOGUE  # noqa: E402

REAL = ("float32", "bfloat16", "float64", "int64", "int32", "uint8", "bool")
HALF = ("float32", "bfloat16")
Case = tuple[str, Callable[[], object]]


def gradient(torch, f, *inputs):
    inputs = [x.detach().requires_grad_() for x in inputs]
    seed = torch.ones_like(f(*inputs))
    return lambda: torch.autograd.grad(f(*inputs), inputs, seed)


def numbers(torch, shape, dtype):
    if dtype in ("float32", "bfloat16", "float64"):
        return torch.randn(*shape).to(getattr(torch, dtype))
    x = torch.randint(0, 100, shape)
    return x > 50 if dtype == "bool" else x.to(getattr(torch, dtype))


def along_dimensions(torch) -> Iterator[Case]:
    any_dtype = ("sum", "amax", "argmax", "any", "cumsum")
    floating = ("max", "mean", "var", "softmax", "log_softmax", "logsumexp")
    for dtype in REAL:
        for shape in ((1024, 1024), (64, 64, 16, 16), (100000, 8), (8, 100000), (32, 4096)):
            x = numbers(torch, shape, dtype)
            for d, n in enumerate(shape):
                tag = f"{dtype} {shape} dim {d}"
                for name in any_dtype + floating * x.is_floating_point():
                    if (name, dtype) != ("argmax", "bool"):
                        yield f"{name} {tag}", lambda: getattr(x, name)(d)
                yield f"flip {tag}", lambda: x.flip(d)
                yield f"roll {tag}", lambda: x.roll(3, d)
                yield f"cat {tag}", lambda: torch.cat([x, x], d)
                yield f"stack {tag}", lambda: torch.stack([x, x], d)
                index = torch.randint(0, n, (n,))
                yield f"index_select {tag}", lambda: x.index_select(d, index)
                if dtype in ("float32", "int64"):
                    places = torch.randint(0, n, shape)
                    yield f"gather {tag}", lambda: x.gather(d, places)
                    yield f"scatter_add {tag}", lambda: torch.zeros_like(x).scatter_add(d, places, x)
                    yield f"sort {tag}", lambda: x.sort(d)
                    yield f"topk {tag}", lambda: x.topk(5, d)
            yield f"transposed copy {dtype} {shape}", lambda: x.transpose(0, -1).contiguous()


def element_by_element(torch) -> Iterator[Case]:
    a, row, column = torch.randn(1024, 1024), torch.randn(1024), torch.randn(1024, 1)
    for dtype in REAL[:-1] + ("complex64",):
        x, y, z = ((t * 50).to(getattr(torch, dtype)) for t in (a, row, column))
        calls = {
            "add": lambda: x + x,
            "add row": lambda: x + y,
            "add column": lambda: x + z,
            "add transposed": lambda: x + x.t(),
            "mul": lambda: x * x,
            "mul number": lambda: x * 3,
            "div": lambda: x / (y + 1),
            "abs": lambda: x.abs(),
            "pow 2": lambda: x**2,
            "pow 3": lambda: x**3,
            "where": lambda: torch.where(x == 0, x, y),
            "slice copy": lambda: x[:, ::3].contiguous(),
            "slice add": lambda: x[::2, ::2] + x[1::2, 1::2],
            "masked_fill": lambda: x.masked_fill(x == 0, 0),
            "masked_select": lambda: x[x != 0],
            "nonzero": lambda: x.nonzero(),
            "tril": lambda: x.tril(),
            "repeat": lambda: x[:512].repeat(2, 1),
            "unfold": lambda: x.unfold(1, 8, 4).contiguous(),
            "permute": lambda: x.view(32, 32, 32, 32).permute(3, 1, 2, 0).contiguous(),
            "sum all": lambda: x.sum(),
            "sum outer": lambda: x.view(32, 32, 32, 32).sum((0, 2)),
            "pad": lambda: torch.nn.functional.pad(x, (1, 1, 1, 1)),
            "to float64": lambda: x.abs().to(torch.float64),
        }
        yield from ((f"{name} {dtype}", f) for name, f in calls.items())
    names = (
        "exp log log1p expm1 sqrt rsqrt sin cos tan tanh sigmoid erf erfc asin acos atan sinh cosh asinh "
        "acosh atanh exp2 "
        "log2 log10 floor round trunc sign reciprocal"
    )
    for name in names.split():
        for dtype in ("float32", "float64", "bfloat16"):
            most = 0.95 if name in ("asin", "acos", "atanh") else 9
            x = (
                (a.abs() * 0.3 + (1.2 if name == "acosh" else 0.05))
                .clamp(0.01, most)
                .to(getattr(torch, dtype))
            )
            yield f"{name} {dtype}", lambda: getattr(torch, name)(x)
    for name in ("gelu", "silu", "softplus", "relu"):
        for dtype in HALF:
            x, f = a.to(getattr(torch, dtype)), getattr(torch.nn.functional, name)
            yield f"{name} {dtype}", lambda: f(x)
            yield f"{name} backward {dtype}", gradient(torch, f, x)


def layers(torch) -> Iterator[Case]:
    F, randn = torch.nn.functional, torch.randn
    for dtype in HALF:
        t = getattr(torch, dtype)
        for shape in ((64, 32, 28, 28), (4, 64, 56, 56), (4, 512, 7, 7), (128, 100), (4096, 64)):
            x, tag = randn(*shape).to(t), f"{dtype} {shape}"
            calls = {
                "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
                "layer_norm": lambda x: F.layer_norm(x, shape[-1:]),
                "softmax": lambda x: x.softmax(-1),
            }
            if len(shape) == 4:
                for kernel, stride, padding in ((2, 2, 0), (3, 2, 1)):
                    pool = (kernel, stride, padding)
                    calls[f"max_pool2d {pool}"] = lambda x, pool=pool: F.max_pool2d(x, *pool)
                    calls[f"avg_pool2d {pool}"] = lambda x, pool=pool: F.avg_pool2d(x, *pool)
                calls["adaptive_avg_pool2d"] = lambda x: F.adaptive_avg_pool2d(x, 1)
                calls["pad"] = lambda x: F.pad(x, (1, 1, 1, 1))
            for name, f in calls.items():
                yield f"{name} {tag}", lambda: f(x)
                yield f"{name} backward {tag}", gradient(torch, f, x)
        convolutions = {
            "1x1": ((8, 64, 28, 28), (128, 64, 1, 1), {}),
            "3x3": ((8, 32, 28, 28), (64, 32, 3, 3), {"padding": 1}),
            "depthwise": ((8, 64, 28, 28), (64, 1, 3, 3), {"groups": 64}),
            "5x5": ((8, 16, 28, 28), (32, 16, 5, 5), {}),
            "stride 2": ((8, 32, 28, 28), (64, 32, 3, 3), {"stride": 2}),
            "odd": ((4, 5, 17, 19), (7, 5, 3, 3), {}),
        }
        for name, (image, weight, options) in convolutions.items():
            x, w = randn(*image).to(t), randn(*weight).to(t)
            yield f"conv2d {name} {dtype}", lambda: F.conv2d(x, w, **options)
            yield (
                f"conv2d backward {name} {dtype}",
                gradient(torch, lambda x, w: F.conv2d(x, w, **options), x, w),
            )
        for m, k, n in (
            (1024, 1024, 1024),
            (1, 1024, 1024),
            (1024, 1024, 1),
            (64, 784, 256),
            (10000, 8, 8),
            (8, 10000, 8),
            (196, 768, 3072),
        ):
            x, y = randn(m, k).to(t), randn(k, n).to(t)
            yield f"mm {m}x{k}x{n} {dtype}", lambda: x @ y
            yield f"mm backward {m}x{k}x{n} {dtype}", gradient(torch, lambda x, y: x @ y, x, y)
        for b, m, k, n in ((64, 32, 32, 32), (1000, 4, 4, 4), (8, 128, 64, 128)):
            x, y = randn(b, m, k).to(t), randn(b, k, n).to(t)
            yield f"bmm {b}x{m}x{k}x{n} {dtype}", lambda: x @ y
    table, index, labels = (
        randn(10000, 128),
        torch.randint(0, 10000, (64, 128)),
        torch.randint(0, 1000, (1024,)),
    )
    scores = randn(1024, 1000)
    yield "embedding", lambda: F.embedding(index, table)
    yield "embedding backward", gradient(torch, lambda w: F.embedding(index, w), table)
    yield "cross_entropy", lambda: F.cross_entropy(scores, labels)
    yield "cross_entropy backward", gradient(torch, lambda x: F.cross_entropy(x, labels), scores)


def small_matrices(torch) -> Iterator[Case]:
    """Linear algebra on batches of 4x4 matrices in each dtype, and with gradients, forward and backward."""
    for dtype in ("float32", "float64", "complex64"):
        names = {"torch": torch}
        exec(PROLOGUE + MATRICES.format(dtype=dtype), names)
        for name, c in OF_MATRICES.items():
            yield f"4x4 {name} {dtype}", eval(f"lambda: torch.{c.call}", names)
            if c.of:
                # The phases of complex vectors are arbitrary: gradients use the expression of the check.
                free = dtype == "complex64" and c.check and name in ("eigh", "svd", "eig")
                yield (
                    f"4x4 {name} backward {dtype}",
                    gradients_of(torch, names, c.check if free else c.call, c.of.split()),
                )


def gradients_of(torch, names: dict, call: str, operands: list[str]) -> Callable[[], object]:
    own = dict(names) | {x: names[x].detach().clone().requires_grad_() for x in operands}
    inputs, call = [own[x] for x in operands], compile(f"torch.{call}", call, "eval")

    def backward():
        results = eval(call, own)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        results = [r for r in results if r.requires_grad]
        return torch.autograd.grad(results, inputs, [torch.ones_like(r) for r in results])

    return backward


# Functions that return no new tensor, take no time, or require other arguments.
NOT_TIMED = re.compile(
    r"^_|_$|empty|rand|normal|bernoulli|poisson|binomial|dropout|new_|save|load|set_|get_|is_|typename|"
    r"result_type|can_cast|promote|broadcast|combinations|cartesian|from_|as_strided|resize|sym_|block_diag|"
    r"outer|ger$|kron|vander|diagflat|diag_embed|dist$|cov|corrcoef|meshgrid|profile|tensor$|histogramdd"
)


def names() -> list[str]:
    """Returns the names of functions of tensors only, as far as names tell; trying them decides."""
    torch = importlib.import_module("facula")
    spaces = {"": torch, "special.": torch.special, "nn.functional.": torch.nn.functional}
    functions = [(f"{space}{n}", getattr(m, n)) for space, m in spaces.items() for n in dir(m)]
    return [n for n, f in functions if callable(f) and not NOT_TIMED.search(n.split(".")[-1])]


def every_operator(torch) -> Iterator[Case]:
    """Calls each function that accepts one, two or three equal tensors: a million elements, and rows of 8
    and 64.
    """
    for dtype in os.environ["FACULA_SWEEP_DTYPES"].split(","):
        yield from every_operator_of(torch, dtype)


def operands(torch, shape, dtype):
    """Returns three tensors: numbers between 0 and 1, complex ones with both parts, or integers from 1 to
    9.
    """
    dtype = getattr(torch, dtype)
    if dtype.is_complex:
        return [
            torch.complex(*(torch.rand(*shape) * 0.9 + 0.05 for _ in range(2))).to(dtype) for _ in range(3)
        ]
    if dtype.is_floating_point:
        return [(torch.rand(*shape) * 0.9 + 0.05).to(dtype) for _ in range(3)]
    if dtype == torch.bool:
        return [torch.rand(*shape) > 0.5 for _ in range(3)]
    return [torch.randint(1, 10, shape).to(dtype) for _ in range(3)]


def every_operator_of(torch, dtype: str) -> Iterator[Case]:
    tag = "" if dtype == "float32" else f" {dtype}"
    for name in json.loads(os.environ["FACULA_SWEEP_NAMES"]):
        f = torch
        for part in name.split("."):
            f = getattr(f, part, None)
        if f is None or isinstance(f, type):
            continue
        for shape in ((1024, 1024), (256, 8), (256, 64)):
            titles = [f"{name}/{count} {shape}{tag}" for count in (1, 2, 3)]
            if not any(re.search(os.environ["FACULA_SWEEP_ONLY"], t) for t in titles):
                continue
            tensors = operands(torch, shape, dtype)
            for count in (1, 2, 3):
                try:
                    result = f(*tensors[:count])
                except Exception:  # (it takes other arguments)
                    continue
                if isinstance(result, torch.Tensor) and result.numel() > 0:
                    yield titles[count - 1], lambda: f(*tensors[:count])
                break


def measured(library: str, only: str | None, threads: int = 1) -> dict[str, float | str]:
    torch = importlib.import_module(library)
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    results: dict[str, float | str] = {}
    clock, most, budget = (time.thread_time, 30, 0.2) if threads == 1 else (time.perf_counter, 100, 0.4)
    for family in (along_dimensions, element_by_element, layers, small_matrices, every_operator):
        for name, f in family(torch):
            if only and not re.search(only, name):
                continue
            try:
                f()
                times, begin = [], time.perf_counter()
                while len(times) < 4 or (len(times) < most and time.perf_counter() - begin < budget):
                    start = clock()
                    f()
                    times.append(clock() - start)
                results[name] = min(times)
            except Exception as error:  # noqa: BLE001  (reported)
                results[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="PATTERN", help="only calls whose name matches this regular expression"
    )
    parser.add_argument("--above", type=float, default=1.3, help="the ratio from which on a call is shown")
    parser.add_argument("--peer", default=os.environ.get("FACULA_PEER", ".peer/bin/python"), metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument(
        "--dtypes",
        default="float32",
        metavar="D,...",
        help="what every function is called with: names, with commas",
    )
    parser.add_argument("--library", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.library:
        print(json.dumps(measured(args.library, args.only, args.threads)))
        return
    both, wanted = [], json.dumps(names())
    for library, python in (("facula", sys.executable), ("torch", args.peer)):
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), FACULA_SWEEP_NAMES=wanted)
        env |= {"FACULA_SWEEP_DTYPES": args.dtypes, "FACULA_SWEEP_ONLY": args.only or ""}
        if library == "torch":
            env.pop("PYTHONPATH", None)
        command = [python, __file__, "--library", library, "--threads", str(args.threads)]
        command += ["--only", args.only] if args.only else []
        both.append(
            json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)
        )
    ours, theirs = both
    ratios = {
        n: ours[n] / theirs[n]
        for n in ours
        if not isinstance(ours[n], str) and not isinstance(theirs.get(n, ""), str)
    }
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    print(f"{len(ratios)} calls, geometric mean {mean:.2f}x; above {args.above}x:")
    for name, ratio in sorted(ratios.items(), key=lambda x: -x[1]):
        if ratio > args.above:
            print(f"{ratio:7.2f}x {ours[name] * 1e6:9.0f} us for {theirs[name] * 1e6:9.0f}  {name}")
    for name in ours:
        if isinstance(ours[name], str) and not isinstance(theirs.get(name, ""), str):
            print(f"error   {name}: {ours[name]}")


if __name__ == "__main__":
    main()
