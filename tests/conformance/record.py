"""One record of one operator's behaviour: how calls and results are written to a file and come back as
tensors of a library.

Used on both sides: by dump.py with PyTorch, by replay.py with Facula (`lib` is the module). A recording is a
zip file with one member per entry of the database: 8 bytes with the size of a JSON text, the text, then the
bytes of all tensors. bfloat16 travels as int16, complex32 as pairs of float16, float8 as bytes, a sparse
tensor as its parts.
"""

import inspect
import json
import struct

import numpy as np

# Floats of 8 bits: bits of the mantissa, what is subtracted from exponents, and the bits of what is no number
# (sign aside, of the least one: of e5m2 the infinity).
FLOAT8 = {
    "float8_e4m3fn": (3, 7, 0x7F),
    "float8_e5m2": (2, 15, 0x7C),
    "float8_e4m3fnuz": (3, 8, None),
    "float8_e5m2fnuz": (2, 16, None),
}
DTYPES = "float32 float64 complex64 complex128 int64 int32 int16 int8 uint8 bool float16 bfloat16".split()
DTYPES += FLOAT8
# Of tensors in a call; a library need not have operators on the last ones.
STORED = (*DTYPES, "complex32", "uint64")
# The parts of a tensor of each layout but strided.
PARTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
}
# Arguments that are objects of a class: where it is, and what its parameters are.
OBJECTS = {
    "LinearCrossEntropyOptions": "allow_retain_graph batch_chunk_size chunking_method acc_policy acc_dtype",
    "PairwiseDistance": "norm:p eps keepdim",
}
# Arguments that are members of an enumeration of nn.functional, by the name of their type.
ENUMERATIONS = {"_ScalingType": "ScalingType", "_SwizzleType": "SwizzleType"}
NAMESPACES = ("nn.functional", "linalg", "fft", "special", "signal", "masked", "sparse")
# What is looked at in a call; the report counts them apart.
FORMS = "function method in-place operator out alias gradient gradgrad jvp error".split()


def distance(x, exact):
    """Element by element; 0 where neither is a number, or both are the same infinity."""
    with np.errstate(all="ignore"):
        d = np.where(x == exact, 0, np.abs(x - exact))
    return np.where(np.isnan(d), np.where(np.isnan(x) == np.isnan(exact), 0, np.inf), d)


class Unrecordable(Exception):
    """A call that has something in it which a file can't hold."""


class Writer:
    """Encodes values as JSON; tensors' bytes go to one buffer."""

    def __init__(self):
        self.bytes = bytearray()

    def array(self, x):
        at = len(self.bytes)
        self.bytes += np.ascontiguousarray(x).tobytes()
        return at

    def check(self, lib, x):
        known = x.layout == lib.strided or layout(x) in PARTS
        if not known or x.device.type != "cpu" or type(x) not in (lib.Tensor, lib.nn.Parameter):
            raise Unrecordable(f"a tensor of layout {x.layout} on {x.device}")
        dtype = str(x.dtype).split(".")[1]
        if dtype not in STORED:
            raise Unrecordable(f"a tensor of dtype {dtype}")

    def tensor(self, lib, x, span=True):
        """With `span`, the memory between the first and the last element, to be rebuilt with its strides;
        else the values alone.
        """
        self.check(lib, x)
        if x.layout != lib.strided:
            return self.sparse(lib, x, span)
        out = {"T": str(x.dtype).split(".")[1], "shape": list(x.shape), "strides": list(x.stride())}
        if x.requires_grad and span:
            out["g"] = 1
        x = x.detach().resolve_conj().resolve_neg()
        out["strides"] = list(x.stride())
        if span:
            n = 1 + sum((s - 1) * t for s, t in zip(x.shape, x.stride())) if x.numel() else 0
            x = x.as_strided((n,), (1,), x.storage_offset())
        x = x.contiguous()
        if x.dtype == lib.complex32:
            out["at"] = self.array(lib.view_as_real(x).numpy())
        elif stored := storage_dtype(out["T"], None):
            out["at"] = self.array(x.view(getattr(lib, stored)).numpy())
        else:
            out["at"] = self.array(x.numpy())
        out["n"] = x.numel()
        return out

    def sparse(self, lib, x, span):
        out = {"layout": layout(x), "shape": list(x.shape)}
        if x.requires_grad and span:
            out["g"] = 1
        if out["layout"] == "sparse_coo" and x.is_coalesced():
            out["coalesced"] = 1
        out["parts"] = [self.tensor(lib, p.detach()) for p in parts(x)]
        return out

    def value(self, lib, x):
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, lib.Tensor):
            return self.tensor(lib, x)
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        if isinstance(x, tuple):
            return {"tuple": [self.value(lib, y) for y in x]}
        if isinstance(x, list):
            return [self.value(lib, y) for y in x]
        if isinstance(x, slice):
            return {"slice": [self.value(lib, y) for y in (x.start, x.stop, x.step)]}
        if x is Ellipsis:
            return {"ellipsis": 0}
        if isinstance(x, (lib.dtype, lib.memory_format, lib.layout)):
            return {"attribute": str(x).split(".")[1]}
        if isinstance(x, lib.device):
            return {"device": str(x)}
        if isinstance(x, type) and x in (bool, int, float, complex):
            return {"type": x.__name__}
        if isinstance(x, np.generic):
            return self.value(lib, x.item())
        if (name := type(x).__name__) in OBJECTS:
            fields = [f.split(":") for f in OBJECTS[name].split()]
            return {"object": [name, [[f[-1], self.value(lib, getattr(x, f[0]))] for f in fields]]}
        if name in ENUMERATIONS:
            return {"member": [ENUMERATIONS[name], x.name]}
        raise Unrecordable(f"an argument of type {type(x).__name__}")


def pack(record, data):
    text = json.dumps(record, separators=(",", ":")).encode()
    return struct.pack("<q", len(text)) + text + bytes(data)


def unpack(blob):
    (n,) = struct.unpack_from("<q", blob)
    return json.loads(blob[8 : 8 + n]), memoryview(blob)[8 + n :]


def layout(x):
    return str(x.layout).split(".")[1]


def parts(x):
    return [getattr(x, p)() for p in PARTS[layout(x)]]


def of_parts(lib, name, parts, shape, **more):
    make = getattr(lib, name + "_tensor")
    return make(*parts, tuple(shape), **more)


def storage_dtype(name, other):
    """The integers that stand for elements of a dtype which NumPy doesn't have."""
    return "uint8" if name in FLOAT8 else {"bfloat16": "int16", "complex32": "int32"}.get(name, other)


def float8_values(name, x):
    mantissa, bias, special = FLOAT8[name]
    magnitude = x & 0x7F
    exponent, fraction = magnitude >> mantissa, (magnitude & ((1 << mantissa) - 1)) / (1 << mantissa)
    lowest = exponent == 0
    value = np.ldexp(fraction + ~lowest, np.maximum(exponent.astype("int32"), 1) - bias)
    if special is None:  # the pattern of -0
        value = np.where(x == 0x80, np.nan, value)
    else:
        beyond = np.where((magnitude == 0x7C) & (special == 0x7C), np.inf, np.nan)
        value = np.where(magnitude >= special, beyond, value)
    return np.where(x >= 0x80, -value, value).astype("float32")


def widened(name, x):
    """The bits of bfloat16 and float8 as the float32 of the same value, complex32's as complex64; all else as
    it is.
    """
    if name in FLOAT8:
        return float8_values(name, x)
    if name == "complex32":
        return x.view("float16").astype("float32").view("complex64")
    return (x.astype("uint16").astype("uint32") << 16).view("float32") if name == "bfloat16" else x


class Reader:
    """Gives back what a Writer took. A tensor that needed a gradient goes through `leaf`, if there is one;
    `leaves` holds what that gave, in order.
    """

    def __init__(self, lib, data, leaf=None):
        self.lib, self.data, self.leaf, self.leaves = lib, data, leaf, []

    def array(self, t):
        return np.frombuffer(self.data, storage_dtype(t["T"], t["T"]), t["n"], t["at"])

    def tensor(self, t):
        lib = self.lib
        if t["T"] == "bfloat16":  # by its bits: PyTorch's conversion from float32 makes NaN negative
            x = lib.from_numpy(self.array(t).copy()).view(lib.bfloat16).clone()  # in memory of its own
        else:
            x = lib.from_numpy(widened(t["T"], self.array(t)).copy()).to(getattr(lib, t["T"]))
        if not t["n"]:  # NumPy has no strides of nothing
            x = lib.empty(t["shape"], dtype=getattr(lib, t["T"]))
        dense, n = [], 1
        for s in reversed(t["shape"]):
            dense.insert(0, n)
            n *= max(s, 1)
        x = x.reshape(t["shape"]) if t["strides"] == dense else x.as_strided(t["shape"], t["strides"])
        x = x.detach()
        if self.leaf and t.get("g"):
            x = self.leaf(x)
            self.leaves.append(x)
        return x

    def sparse(self, t):
        leaf, self.leaf = self.leaf, None
        given = [self.tensor(p) for p in t["parts"]]
        self.leaf = leaf
        more = {"is_coalesced": True} if t.get("coalesced") else {}
        x = of_parts(self.lib, t["layout"], given, t["shape"], **more)
        if self.leaf and t.get("g"):
            x = self.leaf(x)
            self.leaves.append(x)
        return x

    def object(self, name, fields):
        return getattr(self.lib.nn, name)(**{k: self.value(v) for k, v in fields})

    def value(self, x):
        if isinstance(x, list):
            return [self.value(y) for y in x]
        if not isinstance(x, dict):
            return x
        if "layout" in x:
            return self.sparse(x)
        if "T" in x:
            return self.tensor(x)
        ((kind, y),) = x.items()
        return {
            "complex": lambda: complex(*y),
            "tuple": lambda: tuple(self.value(z) for z in y),
            "ellipsis": lambda: Ellipsis,
            "slice": lambda: slice(*(self.value(z) for z in y)),
            "attribute": lambda: getattr(self.lib, y),
            "device": lambda: self.lib.device(y),
            "type": lambda: {"bool": bool, "int": int, "float": float, "complex": complex}[y],
            "object": lambda: self.object(*y),
            "member": lambda: getattr(getattr(self.lib.nn.functional, y[0]), y[1]),
            "kwargs": lambda: {k: self.value(v) for k, v in y.items()},
        }[kind]()


# Functions of the database that are several calls of PyTorch's, in any library. What is random in
# them is the same for the same seed only within one library.
COMPOSED = {
    "svd_lowrank": lambda lib: lambda a, b, **more: lib.svd_lowrank(a @ b.mT, **more),
    "pca_lowrank": lambda lib: lambda a, b, **more: lib.pca_lowrank(a @ b.mT, **more),
}


# Results of which the database looks at absolute values: eigenvectors are determined up to a phase.
ABSOLUTE = {"linalg.eig": (1,), "linalg.eigh": (1,)}


# Operands that are Hermitian or triangular, by position: only directions of that kind say something. The
# database's gradcheck_wrapper keeps to them as well. A triangular one is the upper one unless it says so.
DIRECTIONS = {
    "cholesky": (0, "hermitian"),
    "linalg.cholesky": (0, "hermitian"),
    "linalg.cholesky_ex": (0, "hermitian"),
    "linalg.eigh": (0, "hermitian"),
    "triangular_solve": (1, "upper"),
    "cholesky_inverse": (0, "lower"),
}


def direction(lib, name, position, x, kwargs):
    """The direction of a derivative for an operand of a function."""
    w = weights(lib, x)
    at, kind = DIRECTIONS.get(name, (None, ""))
    if at is None or position != at:
        return w
    if kind == "hermitian":
        return (w + w.mH) / 2
    upper = kwargs.get("upper", kind == "upper")
    w = w.triu() if upper else w.tril()
    if kind == "lower" and w.is_complex():  # a Cholesky factor, whose diagonal is real
        w = w - 1j * lib.diag_embed(w.diagonal(0, -2, -1).imag)
    return w


def determined(lib, name, outputs):
    """The results as derivatives are taken of them."""
    absolute = ABSOLUTE.get(name, ())
    return [lib.abs(x).to(x.dtype) if k in absolute else x for k, x in enumerate(outputs)]


def find(lib, name):
    """The function that users call by this name of the database, or None: a dotted name, a method, or
    `Tensor.name.__get__` for an attribute.
    """
    if name in COMPOSED:
        return COMPOSED[name](lib)
    if name.endswith(".__get__"):
        attribute = name.split(".")[-2]
        return (lambda x: getattr(x, attribute)) if hasattr(lib.Tensor, attribute) else None
    x = lib
    for part in name.removeprefix("torch.").split("."):
        x = getattr(x, part, None)
    if "." not in name and (not callable(x) or inspect.ismodule(x)):
        x = getattr(lib.Tensor, name, None)
    return x if callable(x) and not inspect.ismodule(x) else None


def flat(result):
    """The tensors in a result, and whatever else it holds."""
    if isinstance(result, (tuple, list)):
        return [y for x in result for y in flat(x)]
    return [result]


def tensors(lib, x):
    return [y for y in flat(list(x.values()) if isinstance(x, dict) else x) if isinstance(y, lib.Tensor)]


def weights(lib, x):
    """What a result is multiplied with before its gradient is taken, and the direction of a derivative:
    exact in every type, no two neighbours alike.
    """
    if x.layout != lib.strided:
        *places, values = parts(x)
        return of_parts(lib, layout(x), [*places, weights(lib, values)], x.shape)
    w = 0.5 + (np.arange(x.numel()) * 7919 % 13) / 16
    if x.is_complex():
        w = w * (1 - 0.5j)
    return lib.from_numpy(w).to(x.dtype).reshape(x.shape)


def gradients(lib, outputs, leaves, graph=False):
    """Gradients of the leaves for the weighted outputs; None where an output does not depend on a leaf, and
    None alone if nothing has a gradient.
    """
    outs = [o for o in outputs if isinstance(o, lib.Tensor) and o.requires_grad]
    if not outs or not leaves:
        return None
    seeds = [weights(lib, o.detach()) for o in outs]
    return lib.autograd.grad(outs, leaves, seeds, allow_unused=True, create_graph=graph)


def second_derivatives(lib, outputs, leaves):
    """Gradients of the weighted gradients."""
    first = gradients(lib, outputs, leaves, graph=True)
    return gradients(lib, [g for g in first or () if g is not None], leaves)


def leaf(x):
    return x.requires_grad_(True)


def along(lib, name, case, move):
    """For a Reader: a leaf becomes move(leaf, direction)."""
    places = [k for k, a in enumerate(case["args"]) if isinstance(a, dict) and a.get("g")]
    kwargs, seen = case["kwargs"]["kwargs"], []

    def moved(x):
        k = places[len(seen)] if len(seen) < len(places) else None
        seen.append(k)
        return move(x, direction(lib, name, k, x, kwargs))

    return moved


def tangents(lib, data, name, case, call):
    """The directional derivatives of all results of `call(reader)` along directions of the leaves."""
    forward = lib.autograd.forward_ad
    with forward.dual_level():
        r = Reader(lib, data, along(lib, name, case, forward.make_dual))
        return [forward.unpack_dual(y).tangent if isinstance(y, lib.Tensor) else None for y in flat(call(r))]


def out_tensors(lib, form, results):
    """What `out=` is given in one of OUT_FORMS for these results (pairs of shape and dtype)."""

    def make(shape, dtype):
        if form == "resized":
            return lib.empty((0,), dtype=dtype)
        if form == "strided":  # every other element of a larger memory, whose rest must stay
            return lib.zeros((*shape, 2), dtype=dtype)[..., 0]
        if form == "wrong shape":
            return lib.empty((*shape, 2), dtype=dtype)
        if form == "wider":
            return lib.empty(shape, dtype=lib.complex128 if dtype.is_complex else lib.float64)
        if form == "narrower":  # an error where the result is not an integer
            return lib.empty(shape, dtype=lib.float32 if dtype.is_complex else lib.int64)
        return lib.empty(shape, dtype=dtype)

    outs = tuple(make(shape, dtype) for shape, dtype in results)
    return outs if len(outs) > 1 else outs[0]


OUT_FORMS = ("right", "resized", "strided", "wrong shape", "wider", "narrower")
