"""Records PyTorch's behaviour from its own database of operators. Runs where PyTorch is installed:

    python tests/conformance/dump.py OUT.zip [--samples 40] [--elements 4000] [--required]

For each entry of op_db and each dtype: the sample inputs, the results of the function of that name, the
gradients, and the calls that must raise with the type of the error. Results that depend on the random state
are recorded without values.
"""

import argparse
import re
import time
import warnings
import zipfile

import torch
from record import DTYPES, REQUIRED, Reader, Unrecordable, Writer, base, find, flat, gradients, pack
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db

UNINITIALISED = re.compile(r"(new_)?empty|resize")


def tolerances(op):
    """The largest that the database itself grants, by dtype: [atol, rtol]."""
    out = {}
    for d in op.decorators:
        for t in getattr(d, "decorators", None) or [d]:
            for dtype, tol in (t.d if isinstance(t, toleranceOverride) else {}).items():
                name = str(dtype).split(".")[1]
                out[name] = [max(a, b) for a, b in zip(out.get(name, (0, 0)), (tol.atol, tol.rtol))]
    return out


def same(a, b):
    def both(x, y):
        return (
            torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)) if isinstance(x, torch.Tensor) else x == y
        )

    return len(a) == len(b) and all(both(x, y) for x, y in zip(a, b))


def encode_call(w, s):
    return {
        "args": [w.value(torch, x) for x in (s.input, *s.args)],
        "kwargs": {"kwargs": {k: w.value(torch, v) for k, v in s.kwargs.items()}},
    }


def call(f, w, case, gradient=False):
    r = Reader(torch, bytes(w.bytes), gradient)
    args, kwargs = r.value(case["args"]), r.value(case["kwargs"])
    return args, f(*args, **kwargs), r


def sizes(x):
    if isinstance(x, dict):
        return x["n"] if "n" in x else sum(sizes(y) for y in x.values())
    return sum(sizes(y) for y in x) if isinstance(x, list) else 0


def agrees(name, w, case, outputs, inplace=False):
    """Whether the method of this name gives the same: some functions of the database pass their arguments
    in another order.
    """
    try:
        args, result, _ = call(getattr(torch.Tensor, name), w, case)
    except (RuntimeError, TypeError):
        return False
    return same([args[0]] if inplace else flat(torch, result), outputs) and (
        not inplace or args[0].dtype == outputs[0].dtype
    )


def record_sample(w, f, method, op, s, elements):
    case = encode_call(w, s)
    if sizes(case["args"]) + sizes(case["kwargs"]) > elements:
        raise Unrecordable("large")
    torch.manual_seed(0)
    args, result, _ = call(f, w, case)
    torch.manual_seed(1)
    again = flat(torch, call(f, w, case)[1])
    outputs = flat(torch, result)
    if sum(o.numel() for o in outputs if isinstance(o, torch.Tensor)) > elements:
        raise Unrecordable("large")
    values = same(outputs, again) and not UNINITIALISED.match(op.name)
    memory = {
        x.untyped_storage().data_ptr() for x in flat(torch, args) if isinstance(x, torch.Tensor) and x.numel()
    }
    case["results"] = []
    for o in outputs:
        if not isinstance(o, torch.Tensor):
            case["results"].append({"value": w.value(torch, o)})
            continue
        if not values:
            case["results"].append({"T": str(o.dtype).split(".")[1], "shape": list(o.shape)})
            continue
        t = w.tensor(torch, o, span=False)
        if o.numel() and o.untyped_storage().data_ptr() in memory:
            t["view"] = 1
        case["results"].append(t)
    if values:
        _, result, r = call(f, w, case, gradient=True)
        grads = gradients(torch, flat(torch, result), r.leaves)
        if grads is not None and not any(g is not None and g.layout != torch.strided for g in grads):
            case["gradients"] = [None if g is None else w.tensor(torch, g, span=False) for g in grads]
        name = getattr(op.inplace_variant, "__name__", None)
        if name and name.endswith("_") and not s.broadcasts_input and hasattr(torch.Tensor, name):
            if agrees(name, w, case, outputs, inplace=True):
                case["inplace"] = name
        if method and agrees(method, w, case, outputs):
            case["method"] = method
    return case


def record(op, limit, elements):
    f = find(torch, op.name)
    method = op.method_variant and getattr(op.method_variant, "__name__", None)
    if method and (not hasattr(torch.Tensor, method) or f is getattr(torch.Tensor, method)):
        method = None
    out = {
        "name": op.name,
        "variant": op.variant_test_name,
        "tolerances": tolerances(op),
        "cases": [],
        "errors": [],
    }
    w = Writer()
    if f is None:
        return None
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in op.supported_dtypes("cpu"):
            continue
        gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=gradient))
        except Exception as e:  # noqa: BLE001  a sample maker of the database that needs what is not installed
            print(f"{op.name} {name}: no samples: {e!r:.100}")
            continue
        step = max(1, len(samples) / limit)
        for k in range(min(limit, len(samples))):
            s, at = samples[int(k * step)], len(w.bytes)
            try:
                case = record_sample(w, f, method, op, s, elements)
                out["cases"].append({"dtype": name, "sample": int(k * step), **case})
            except Exception:  # noqa: BLE001  not a call by this name, or not to be held by a file
                del w.bytes[at:]
    try:
        errors = list(op.error_inputs("cpu")) if op.error_inputs_func else []
    except Exception:  # noqa: BLE001
        errors = []
    for e in errors:
        at = len(w.bytes)
        try:
            case = encode_call(w, e.sample_input)
            if sizes(case["args"]) > elements:
                raise Unrecordable("large")
            try:
                call(f, w, case)
            except Exception as error:  # noqa: BLE001
                text = re.sub(r"\s+", " ", str(error))[:200]
                out["errors"].append({**case, "error": type(error).__name__, "text": text})
        except Unrecordable:
            del w.bytes[at:]
    return pack(out, w.bytes)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument(
        "--samples",
        type=int,
        default=40,
        help="at most so many of an operator's samples in each dtype, evenly chosen",
    )
    p.add_argument("--elements", type=int, default=4000, help="leave out samples with more elements")
    p.add_argument("--only", default="", help="a regular expression that names must match as a whole")
    p.add_argument(
        "--required", action="store_true", help="only the operators that every sample must pass for"
    )
    p.add_argument("--part", default="0/1", help="K/N: the entries K, K+N, ...")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started, (k, n) = time.time(), map(int, a.part.split("/"))
    with zipfile.ZipFile(a.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for op in op_db[k::n]:
            if (a.only and not re.fullmatch(a.only, op.name)) or (
                a.required and base(op.name) not in REQUIRED
            ):
                continue
            torch.manual_seed(0)
            blob = record(op, a.samples, a.elements)
            if blob is not None:
                z.writestr(op.name + ("." + op.variant_test_name if op.variant_test_name else ""), blob)
    print(f"recorded in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
