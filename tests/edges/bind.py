"""How the arguments of a call reach the function of that name in either library."""

import contextlib

from record import find

STYLES = ("leading", "keywords", "first", "positional", "spread")


def bind(style, args, positional):
    """(args, kwargs) for the function, from arguments by name."""
    names = list(args)
    lead = 0
    while lead < len(names) and lead < len(positional) and names[lead] == positional[lead]:
        lead += 1
    if style == "keywords":
        return (), {"input" if n == "self" else n: v for n, v in args.items()}
    if style == "spread":  # a list of tensors as arguments of its own
        if not isinstance(args[names[0]], list):
            raise TypeError("no list")
        return tuple(args[names[0]]), {n: args[n] for n in names[1:]}
    count = {"leading": lead, "first": min(1, len(names)), "positional": len(names)}[style]
    return tuple(args[n] for n in names[:count]), {n: args[n] for n in names[count:]}


def function(lib, name, form):
    """The function for a form: `in place` is the method with an underscore."""
    if form == "in place":
        name = "Tensor." + name.split(".")[-1] + "_"
    return find(lib, name)


def perform(lib, plan, form, args, positional):
    """What a call gives, as a list: results; in place, the tensor itself; out=, the tensors given."""
    name, style = plan
    f = function(lib, name, form)
    a, k = bind(style, args, positional)
    if form == "out":
        k["out"] = lib.empty(0, dtype=args_dtype(lib, args))
        r = f(*a, **k)
        return [r, k["out"]]
    r = f(*a, **k)
    if form == "in place":
        return [r, a[0]]
    return list(r) if isinstance(r, (tuple, list)) else [r]


def args_dtype(lib, args):
    return next((v.dtype for v in args.values() if isinstance(v, lib.Tensor)), lib.float32)


@contextlib.contextmanager
def gradients_kept(lib, wanted):
    with contextlib.ExitStack() as stack:
        if not wanted:
            stack.enter_context(lib.no_grad())
        yield
