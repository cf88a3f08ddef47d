"""Wrong calls of every operator, derived from its schema and first samples: text that evaluates in
`environment`.
"""

import facula
from facula import _C


def t(*sizes, dtype=None):
    """Some tensor of these sizes: numbers below 1, zeros of an integer dtype."""
    n = 1
    for s in sizes:
        n *= s
    dtype = dtype or facula.float32
    if not dtype.is_floating_point:
        return facula.zeros(sizes, dtype=dtype)
    return ((facula.arange(n) % 7 + 1) / 8).to(dtype).reshape(sizes)


def environment():
    e = {name: getattr(facula, name) for name, d in vars(_C).items() if isinstance(d, _C.dtype)}
    e.update(ops=_C.ops, t=t, inf=float("inf"), nan=float("nan"), true=True, false=False, none=None)
    return e


def _tensor(sizes, dtype):
    return (
        f"t({', '.join(map(str, sizes))}{', ' if sizes and dtype else ''}{f'dtype={dtype}' if dtype else ''})"
    )


def _text(name, sample, change=lambda argument, sizes, dtype: (sizes, dtype), replaced=()):
    replaced = dict(replaced)
    out = []
    for argument, a in sample.items():
        if argument in replaced:
            out.append(f"{argument}={replaced[argument]}")
        elif a["kind"] == "literal":
            out.append(f"{argument}={a['literal']}")
        else:
            dtype = "int64" if a["index"] else "bool" if a["boolean"] else ""
            made = [_tensor(*change(argument, list(s), dtype)) for s in a["sizes"]]
            out.append(f"{argument}={made[0] if a['kind'] == 'tensor' else '[' + ', '.join(made) + ']'}")
    return f"ops.{name}({', '.join(out)})"


def wrong_calls(operator):
    """Of one operator (an item of _C.operators()): calls, most of which are wrong, without doubles."""
    name = operator["name"]
    full = name + ("." + operator["overload"] if operator["overload"] else "")
    calls = {}
    for sample in _C.inspect_operator(full)["samples"][:1]:
        tensors = [k for k, a in sample.items() if a["kind"] != "literal"]
        for k in tensors:
            # other sizes, one dimension more, none at all
            calls[_text(name, sample, lambda a, s, d, k=k: ([n + 1 for n in s] if a == k else s, d))] = 1
            calls[_text(name, sample, lambda a, s, d, k=k: (s + [2] if a == k else s, d))] = 1
            calls[_text(name, sample, lambda a, s, d, k=k: ([] if a == k else s, d))] = 1
            for dtype in ("bool", "int64", "complex64", "float64"):
                calls[_text(name, sample, lambda a, s, d, k=k, n=dtype: (s, n if a == k else d))] = 1
        for k, a in sample.items():
            wrong = "'a'" if a["kind"] != "literal" or a["literal"][:1] not in "'\"" else "0.5"
            calls[_text(name, sample, replaced={k: wrong})] = 1
            if a["kind"] == "literal" and a["literal"].lstrip("-").isdigit():
                calls[_text(name, sample, replaced={k: "-7"})] = 1
                calls[_text(name, sample, replaced={k: "10**15"})] = 1
    return [c for c in calls if not c.startswith("ops._")]


def empty_calls(operator):
    """Calls of one operator in which every dimension of one size has become 0, for each size there is, and
    all.
    """
    name = operator["name"]
    full = name + ("." + operator["overload"] if operator["overload"] else "")
    calls = {}
    for sample in _C.inspect_operator(full)["samples"]:
        sizes = {n for a in sample.values() if a["kind"] != "literal" for s in a["sizes"] for n in s if n}
        for gone in [{n} for n in sorted(sizes)] + [sizes]:
            calls[_text(name, sample, lambda a, s, d, gone=gone: ([0 if n in gone else n for n in s], d))] = 1
    return list(calls)
