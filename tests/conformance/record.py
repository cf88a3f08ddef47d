"""One record of one operator's behaviour: how calls and results are written to a file and come back as
tensors of a library.

Used on both sides: by dump.py with PyTorch, by replay.py with Facula (`lib` is the module). A recording is a
zip file with one member per operator: 8 bytes with the size of a JSON text, the text, then the bytes of all
tensors. bfloat16 travels as int16.
"""

import inspect
import json
import struct
from pathlib import Path

import numpy as np

DTYPES = ("float32", "float64", "int64", "bool", "bfloat16", "complex64")
# The operators that every sample must pass for.
REQUIRED = (Path(__file__).parent / "operators.txt").read_text().split()
NAMESPACES = ("nn.functional", "linalg", "fft", "special")


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

    def tensor(self, lib, x, span=True):
        """With `span`, the memory between the first and the last element, to be rebuilt with its strides;
        else the values alone.
        """
        if x.layout != lib.strided or x.device.type != "cpu" or type(x) not in (lib.Tensor, lib.nn.Parameter):
            raise Unrecordable(f"a tensor of layout {x.layout} on {x.device}")
        out = {"T": str(x.dtype).split(".")[1], "shape": list(x.shape), "strides": list(x.stride())}
        if x.requires_grad and span:
            out["g"] = 1
        x = x.detach().resolve_conj().resolve_neg()
        out["strides"] = list(x.stride())
        if span:
            n = 1 + sum((s - 1) * t for s, t in zip(x.shape, x.stride())) if x.numel() else 0
            x = x.as_strided((n,), (1,), x.storage_offset())
        x = x.contiguous()
        out["at"] = self.array((x.view(lib.int16) if x.dtype == lib.bfloat16 else x).numpy())
        out["n"] = x.numel()
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
        raise Unrecordable(f"an argument of type {type(x).__name__}")


def pack(record, data):
    text = json.dumps(record, separators=(",", ":")).encode()
    return struct.pack("<q", len(text)) + text + bytes(data)


def unpack(blob):
    (n,) = struct.unpack_from("<q", blob)
    return json.loads(blob[8 : 8 + n]), memoryview(blob)[8 + n :]


def storage_dtype(name):
    return {"bfloat16": "int16"}.get(name, name)


def widened(name, x):
    """bfloat16's bits as the float32 of the same value; everything else as it is."""
    return (x.astype("uint16").astype("uint32") << 16).view("float32") if name == "bfloat16" else x


class Reader:
    """Gives back what a Writer took. A tensor that needed a gradient is a leaf again; `leaves` holds them
    in order.
    """

    def __init__(self, lib, data, with_gradient=False):
        self.lib, self.data, self.with_gradient, self.leaves = lib, data, with_gradient, []

    def array(self, t):
        return np.frombuffer(self.data, storage_dtype(t["T"]), t["n"], t["at"])

    def tensor(self, t):
        lib = self.lib
        x = lib.from_numpy(widened(t["T"], self.array(t)).copy()).to(getattr(lib, t["T"]))
        dense, n = [], 1
        for s in reversed(t["shape"]):
            dense.insert(0, n)
            n *= max(s, 1)
        x = x.reshape(t["shape"]) if t["strides"] == dense else x.as_strided(t["shape"], t["strides"])
        x = x.detach()
        if self.with_gradient and t.get("g"):
            x.requires_grad_(True)
            self.leaves.append(x)
        return x

    def value(self, x):
        if isinstance(x, list):
            return [self.value(y) for y in x]
        if not isinstance(x, dict):
            return x
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
            "kwargs": lambda: {k: self.value(v) for k, v in y.items()},
        }[kind]()


def find(lib, name):
    """The function that users call by this name of the database, or None: a dotted name, else a method."""
    x = lib
    for part in name.split("."):
        x = getattr(x, part, None)
    if x is None and "." not in name:
        x = getattr(lib.Tensor, name, None)
    return x if callable(x) and not inspect.ismodule(x) else None


def flat(lib, result):
    """The tensors in a result, and whatever else it holds."""
    if isinstance(result, (tuple, list)):
        return [y for x in result for y in flat(lib, x)]
    return [result]


def weights(n, dtype):
    """What a result is multiplied with before its gradient is taken: exact in every type, no two
    neighbours alike.
    """
    w = 0.5 + (np.arange(n) * 7919 % 13) / 16
    return (w * (1 - 0.5j)).astype("complex64") if dtype == "complex64" else w.astype("float64")


def gradients(lib, outputs, leaves):
    """Gradients of the leaves for the weighted outputs; None where an output does not depend on a leaf."""
    outs = [o for o in outputs if isinstance(o, lib.Tensor) and o.requires_grad]
    if not outs or not leaves:
        return None
    seeds = [
        lib.from_numpy(weights(o.numel(), str(o.dtype).split(".")[1])).reshape(o.shape).to(o.dtype)
        for o in outs
    ]
    return lib.autograd.grad(outs, leaves, seeds, allow_unused=True)


def base(name):
    """The name of a required operator without its variant in the database; other names as they are."""
    return next((s for s in REQUIRED if name == s or name.startswith(s + ".")), name)
