"""What becomes of a call, with either library: an answer, an error, and of which kind."""

import json
import math
import re
import time
import warnings

import numpy as np
from compare import other
from operands import maker

READ = 2000  # elements of a result that are read
# What a program may expect of a wrong call. MemoryError is Python's own.
TYPES = ("RuntimeError IndexError TypeError ValueError NotImplementedError LinAlgError OverflowError "
         "OutOfMemoryError AssertionError BufferError MemoryError ZeroDivisionError").split()  # fmt: skip
# Texts that speak of how we are made.
INTERNAL = re.compile(
    r"internal|std::|basic_string|vector::|map::|bad_alloc|bad_\w+_access|out_of_range|Assertion|0x[0-9a-f]{6}"
    r"|_C\.(?!TensorMeta)|\.cpp|\.h:\d|object has no attribute|'NoneType' object (?!$|cannot be interp)"
    r"|not subscriptable|not iterable|unsupported operand type|not supported between|to unpack|local variable"
)
LINE = 4 << 20  # bytes that a call may take beside eight times what it reads and gives


def environment(lib, leaves, alike=""):
    def put(x, index, value):
        x[index] = value
        return x

    return {"F": lib, "np": np, "nan": math.nan, "inf": math.inf, "t": maker(lib, leaves, alike), "put": put}


def tensors(lib, x):
    if isinstance(x, lib.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from tensors(lib, y)
    elif isinstance(x, dict):
        yield from tensors(lib, list(x.values()))


def plain(v):
    if isinstance(v, complex):
        return ["c", plain(v.real), plain(v.imag)]
    if isinstance(v, float) and not math.isfinite(v):
        return repr(v)
    return v if isinstance(v, (bool, int, float, str)) or v is None else type(v).__name__


def told(lib, x, values):
    """A result as JSON, everything in it read."""
    if type(x) in (lib.Tensor, lib.nn.Parameter):
        out = {
            "T": str(x.dtype).split(".")[-1],
            "shape": list(x.shape),
            "layout": str(x.layout).split(".")[-1],
        }
        if x.device.type == "cpu" and x.numel() <= READ:
            x = x.detach()
            if out["layout"] != "strided":
                x = x.to_dense()
            read = x.resolve_conj().resolve_neg().reshape(-1).tolist()
            if values and len(read) <= 64:
                out["values"] = [plain(v) for v in read]
        return out
    if isinstance(x, (list, tuple)):
        return [told(lib, y, values) for y in list(x)[:50]]
    return plain(x)


def error(e):
    return {"error": type(e).__name__, "text": str(e)[:600]}


def answer(lib, text, values=True, alike=""):
    """{"results": ...} or {"error": type, "text": ...}; "gradient" of leaves. For `alike` see maker."""
    leaves = []
    names = environment(lib, leaves, alike)
    lib.manual_seed(0)
    started = time.perf_counter()
    out = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            code = compile(text, "call", "eval")
        except SyntaxError as e:
            return {"unmade": str(e)}
        try:
            result = eval(code, names)
        except Exception as e:  # noqa: BLE001
            if made(e) or isinstance(e, NameError):
                return {"unmade": f"{type(e).__name__}: {e}"[:200]}
            return {**error(e), "seconds": time.perf_counter() - started}
        try:
            out["results"] = told(lib, result, values)
        except Exception as e:  # noqa: BLE001
            return {"unread": error(e), "seconds": time.perf_counter() - started}
        if leaves:
            out["gradient"] = gradient(lib, result, leaves, values)
    out["seconds"] = time.perf_counter() - started
    return out


def failed(said):
    return isinstance(said, dict) and "error" in said


def deviation(lib, text, got):
    """How the call of contiguous operands, without out= (`text`), gives something else; None if not."""
    again = answer(lib, text, alike="plain")
    if "results" not in again:
        return f"{again.get('error', '')}: {again}"
    for key in ("results", "gradient"):
        both = [x[key] for x in (got, again) if x.get(key) and not failed(x[key])]
        here = other(*both) if len(both) == 2 else None
        if here and not here.startswith("dtype"):  # that of out=
            return f"{key}: {here}"
    return None


def meta_deviation(lib, text, got):
    """How the call of operands without memory gives another shape or dtype, if it is answered; else None."""
    again = answer(lib, text, values=False, alike="meta")
    shapes = json.loads(
        json.dumps(got["results"]), object_hook=lambda x: {k: x[k] for k in ("T", "shape") if k in x}
    )
    here = other(shapes, again["results"]) if "results" in again else None
    return None if here and here.startswith("layout") else here


def made(e):
    """Was it an operand that could not be made, not the call?"""
    tb = e.__traceback__
    while tb.tb_next:
        if tb.tb_next.tb_frame.f_code.co_filename.endswith("operands.py"):
            return True
        tb = tb.tb_next
    return False


def gradient(lib, result, leaves, values):
    outs = [
        x for x in tensors(lib, result) if x.requires_grad and x.device.type == "cpu" and x.numel() <= READ
    ]
    leaves = [x for x in leaves if x.numel() <= READ and x.device.type == "cpu"]
    if not outs or not leaves:
        return None
    try:
        seeds = [lib.ones_like(x.detach()) for x in outs]
        return told(lib, list(lib.autograd.grad(outs, leaves, seeds, allow_unused=True)), values)
    except Exception as e:  # noqa: BLE001
        return error(e)


# What Python says itself of `x < 'a'`, and PyTorch of devices.
PYTHONS = re.compile(
    r"not supported between|unsupported operand type|bad operand type|not compiled with \w+ enabled"
    r"|can be converted to an index|can't multiply sequence|can only concatenate"
)


def clear(lib, said, names, every, unwritable=frozenset()):
    """None for a clear error, or what is wrong with it. `names`: by which it may call the operator."""
    kind, text = said["error"], said["text"]
    if (kind == "TypeError" and " - got (" in text) or PYTHONS.search(text):
        return None
    if kind not in TYPES:
        return "type " + kind
    found = INTERNAL.search(
        re.sub(r"<[^<>]*(<\w+>)?[^<>]* at 0x[0-9a-f]+>", "", text)
    )  # objects of a program
    if found:
        return "text " + found[0][:20].split("0x")[0]
    # a backward names the node as PyTorch does
    words = set(re.findall(r"\w+", re.sub(r"derivative for '?(aten::)?\w+", "", text)))
    if words & unwritable:
        return "hidden name " + min(words & unwritable)
    near = {w for n in names for w in (n, n.rstrip("_"), n + "_", n.split("_", 1)[-1])}
    if words & near:
        return None
    head = re.match(r"(\w+)(?:\(\))?:", text)
    return "another's name" if head and head[1].rstrip("_") in every else "no name"


def judged(lib, got, names, every, unwritable=frozenset()):
    """(class, detail) of an answer; the class is `answer` or `error` where all is well."""
    for key in ("unmade", "crash"):
        if key in got:
            return key, got[key]
    for key, kind in (("alike", "otherwise laid out"), ("meta", "otherwise without memory")):
        if got.get(key):
            return kind, got[key]
    said = (
        got
        if "error" in got
        else got.get("unread") or (got["gradient"] if failed(got.get("gradient")) else None)
    )
    if said is None:
        return "answer", ""
    where = "" if "error" in got else "reading: " if "unread" in got else "gradient: "
    wrong = clear(lib, said, names, every, unwritable)
    if where == "reading: ":
        wrong = wrong or "not readable"
    if wrong and not (
        where == "gradient: " and not wrong.startswith(("t", "hidden"))
    ):  # a backward has no operator's name
        return (
            where + "unclear (" + wrong + ")",
            f"{said['error']}: {said['text'].splitlines()[0] if said['text'] else ''}",
        )
    return where + "error", said["error"]
