"""The registry as test cases: every operator with its samples, made into arguments for any dtype and layout.

Importable with PyTorch alone too (tests/golden/record_operators.py), hence NumPy only at the top.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import inf, nan, prod

import numpy as np

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
FLOATING = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
LAYOUTS = ("transposed", "gaps", "offset", "expanded")
SMALL = 64  # elements
# What has no value that two calls share.
UNDEFINED = "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_".split()


@dataclass(frozen=True)
class Case:
    """One operator, as the registry describes it."""

    name: str  # with the overload: "max.dim"
    base: str  # without: "max"
    kind: str
    schema: str
    in_place: bool
    out: bool
    samples: tuple
    dtypes: tuple
    differentiable: bool
    non_differentiable: tuple
    undifferenced: str
    random: bool

    @property
    def compared(self) -> bool:
        """Do finite differences show the gradient of the results that carry one?"""
        return not self.undifferenced or bool(self.non_differentiable)

    @property
    def writes(self) -> bool:
        return "!" in self.schema


def cases() -> list[Case]:
    import facula._C as C

    out = []
    for o in C.operators():
        name = o["name"] + ("." + o["overload"] if o["overload"] else "")
        i = C.inspect_operator(name)
        out.append(
            Case(
                name,
                o["name"],
                o["kind"],
                o["schema"],
                o["in_place"],
                o["out"],
                tuple(i["samples"]),
                tuple(str(d).split(".")[-1] for d in i["dtypes"]),
                i["differentiable"],
                tuple(i["non_differentiable"]),
                i["undifferenced"],
                i["random"],
            )
        )
    return out


def usual_dtype(case: Case) -> str:
    """The one that a case is tried in where one is enough."""
    return next(d for d in ("float32", "complex64", "int64", "bool", *case.dtypes) if d in case.dtypes)


def tensors(x) -> list:
    """All in arguments or results."""
    import facula

    if isinstance(x, facula.Tensor):
        return [x]
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in tensors(y)]
    return [t for y in x.values() for t in tensors(y)] if isinstance(x, dict) else []


def is_real_tensor(argument: dict) -> bool:
    """A tensor whose dtype is free: neither index nor mask."""
    return argument["kind"] != "literal" and not argument["index"] and not argument["boolean"]


def largest(sample: dict) -> int:
    return max((prod(s) for a in sample.values() if a["kind"] != "literal" for s in a["sizes"]), default=0)


def values(case_name: str, number: int, argument_name: str, item: int, a: dict, dtype: str) -> np.ndarray:
    """What a sample's tensor holds, as float64 (complex128) rounded to `dtype`: the same on every run and
    machine.
    """
    seed = zlib.crc32(f"{case_name}/{number}/{argument_name}/{item}".encode())
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = a["sizes"][item]
    n = prod(sizes)
    if a["index"]:
        return np.asarray(np.floor(rng.uniform(a["low"], a["high"], sizes))).astype(np.int64)
    if a["boolean"]:
        return np.asarray(rng.uniform(0, 1, sizes)) < 0.5
    x = rng.uniform(a["low"], a["high"], sizes)
    if a["distinct"]:
        x = a["low"] + (a["high"] - a["low"]) * (rng.permutation(n) + 0.5) / max(n, 1)
        x = x.reshape(sizes)
    if a["positive_definite"]:
        x = x @ np.swapaxes(x, -1, -2) + 2 * np.eye(sizes[-1])
    if dtype in COMPLEX and not a["positive_definite"]:
        x = x + 1j * rng.uniform(a["low"], a["high"], sizes)
    if dtype == "bool":
        return np.asarray(x) > (a["low"] + a["high"]) / 2
    if dtype in ("uint8", "int8", "int16", "int32", "int64"):
        return np.asarray(np.round(np.abs(x) if dtype == "uint8" else x)).astype(dtype)
    if dtype == "bfloat16":  # rounded by hand: NumPy has none
        return np.asarray(bfloat16(x), dtype=np.float64)
    x = np.asarray(x).astype(dtype)
    return x.astype(np.complex128 if dtype in COMPLEX else np.float64)


def bfloat16(x: np.ndarray) -> np.ndarray:
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def literal(text: str, lib) -> object:
    if text in DTYPES:
        return getattr(lib, text)
    return eval(text, {"inf": inf, "nan": nan, "cpu": "cpu"})


def numpy_arguments(case: Case, number: int, dtype: str) -> dict:
    """Arguments by name: arrays, lists of arrays, and the text of literals."""
    out = {}
    for name, a in case.samples[number].items():
        if a["kind"] == "literal":
            out[name] = a["literal"]
            continue
        arrays = [values(case.name, number, name, k, a, dtype) for k in range(len(a["sizes"]))]
        out[name] = arrays[0] if a["kind"] == "tensor" else arrays
    return out


def tensor(x: np.ndarray, dtype: str, layout: str = "contiguous"):
    """A facula tensor with the values of `x`."""
    import facula as F

    t = F.tensor(np.ascontiguousarray(x)).reshape(x.shape).to(getattr(F, dtype))
    return laid_out(t, layout, F)


def laid_out(t, layout: str, lib):
    if layout == "contiguous" or t.dim() == 0:
        return t
    if layout == "transposed":
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "gaps":
        room = lib.zeros(*t.shape[:-1], 2 * t.shape[-1] + 1, dtype=t.dtype)
        v = room[..., 1::2]
        v.copy_(t)
        return v
    if layout == "offset":
        room = lib.zeros(t.numel() + 3, dtype=t.dtype)
        v = room[3:].view(t.shape)
        v.copy_(t)
        return v
    if layout == "expanded":  # other values: every slice is the first
        return t[:1].expand(t.shape) if t.shape[0] else t
    if layout.startswith("hidden "):  # "hidden 0231": the order of the dimensions in memory, outermost first
        import facula._C as C

        order = layout.split()[1]
        return C.in_physical_order(t, [int(d) for d in order]) if len(order) == t.dim() else t
    raise ValueError(layout)


def arguments(case: Case, number: int, dtype: str, layout: str = "contiguous") -> dict:
    """Arguments by name for `call`."""
    import facula as F

    out = {}
    for name, x in numpy_arguments(case, number, dtype).items():
        a = case.samples[number][name]
        if a["kind"] == "literal":
            out[name] = literal(x, F)
            continue
        own = "int64" if a["index"] else "bool" if a["boolean"] else dtype
        if a["kind"] == "tensor":
            out[name] = tensor(x, own, layout)
        else:
            out[name] = [tensor(y, own, layout) for y in x]
    return out


def call(case: Case, args: dict) -> list:
    """The results of the operator, as a list."""
    import facula._C as C

    r = getattr(C.ops, case.base)(**args)
    return list(r) if isinstance(r, (tuple, list)) else [] if r is None else [r]


def to_numpy(t) -> np.ndarray:
    import facula as F

    t = t.detach().resolve_conj().resolve_neg()
    wider = {F.bfloat16: F.float32, F.complex32: F.complex64}  # of what NumPy does not have
    return np.array(t.to(wider.get(t.dtype, t.dtype)).contiguous().numpy())


# Operators of a Hermitian matrix, whose diagonal is real: a direction must be real there too.
HERMITIAN = {"_linalg_cholesky", "linalg_cholesky", "cholesky"}


def random_like(t, rng, case=None):
    """A tensor of the same shape and dtype with elements in [-1, 1)."""
    import facula as F

    x = rng.uniform(-1, 1, tuple(t.shape))
    if t.is_complex() and not (case and case.name in HERMITIAN):
        x = x + 1j * rng.uniform(-1, 1, tuple(t.shape))
    return F.tensor(np.ascontiguousarray(x)).reshape(t.shape).to(t.dtype)


def dtype_of(t) -> str:
    return str(t.dtype).split(".")[-1]


def bits(t) -> bytes:
    """The elements of a tensor, to compare bit by bit."""
    import facula as F

    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.dtype == F.bfloat16:
        t = t.to(F.float32)
    return np.array(t.numpy()).tobytes()
