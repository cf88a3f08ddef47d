"""Records facts of PyTorch's callables: run by an interpreter that has PyTorch.

    python tests/golden/record_callables.py

A line for each function, class and public method of the namespaces in names.txt: its dotted name, flags, and
the names of parameters that may be given by keyword. The flags are `a` for a function that takes attributes,
`g` for a class that is generic (``DataLoader[int]``), and `-` for neither. Methods that a class inherits are
recorded with the class that defines them. The parameters of builtins come from the operators' schemas.
"""

import importlib
import inspect
import re
import sys
import types
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from support import recording  # noqa: E402

NAMES = Path(__file__).parent / "names.txt"
ROWS = []  # of callables.txt
FACTORY = ("dtype", "layout", "device", "pin_memory", "requires_grad")


def space_of(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return getattr(importlib.import_module(owner), last)


def by_signature(f):
    """Names that may be keywords, or None where the callable has no signature."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named]


def dispatched(schema):
    """Does Python call it? Not what TorchScript has for numbers, nor out= forms that were generated later."""
    packet = getattr(torch.ops.aten, schema.name[6:])
    try:
        overload = getattr(packet, schema.overload_name or "default")
        torch._C._dispatch_find_schema_or_throw(schema.name, schema.overload_name)
    except (AttributeError, RuntimeError):
        return False
    return torch.Tag.generated not in overload.tags


def schemas_by_name():
    schemas = {}
    for s in torch._C._jit_get_all_schemas():
        if s.name.startswith("aten::") and dispatched(s):
            schemas.setdefault(s.name[6:], []).append(s)
    return schemas


SCHEMAS = schemas_by_name()


def by_schema(f, name, method):
    """Names of the parameters of an operator, whose functions are builtins."""
    builtin = (types.BuiltinFunctionType, types.MethodDescriptorType)
    schemas = SCHEMAS.get(getattr(f, "__name__", name), [])
    if not isinstance(f, builtin) or not schemas:
        return None
    found = {}
    for s in schemas:
        names = ["out" if a.is_out else a.name for a in s.arguments]
        if set(FACTORY[:4]) <= set(names):
            names.append(FACTORY[4])
        for n in names:
            if not (method and n in ("self", "out")):
                found["input" if n == "self" else n] = None
    return accepted(f, list(found), method)


def complaint(f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except Exception as e:
        return str(e)
    return ""


def accepted(f, names, method):
    """The names in the signatures that the error of a wrong call lists. Where it lists none: the names that
    no error calls unexpected.
    """
    first = (torch.ones(2),) if method else ()
    listed = complaint(f, *first, object()).partition("but expected ")[2]
    known = []
    for n in names:
        if listed:
            fits = re.search(rf"\b{n}\b", listed)
        else:
            said = complaint(f, *first, **{n: object()})
            fits = not re.search("unexpected keyword|unrecognized keyword|no keyword", said)
        if fits:
            known.append(n)
    return known


def flags_of(f):
    if isinstance(f, type):
        try:
            f[int]
        except Exception:
            return "-"
        return "g"
    try:
        f.probe = 1
        del f.probe
    except (AttributeError, TypeError):
        return "-"
    return "a"


def tell(path, f, method=False, silent=False):
    """`silent`: of a class that says nothing of its parameters."""
    names = [] if silent else by_signature(f)
    if names is None:
        names = by_schema(f, path.rpartition(".")[2], method)
    elif method:
        names = [n for n in names if n not in ("self", "cls")]
    names = [n for n in names or () if not n.startswith("_")]
    flags = "-" if method else flags_of(f)
    if names or flags != "-":
        ROWS.append(" ".join([path, flags, *names]))


def tell_class(path, cls, told):
    if cls in told:
        return
    told.add(cls)
    own = [k for k, c in enumerate(cls.__mro__) if "__init__" in vars(c) or "__new__" in vars(c)]
    tell(path, cls, silent=not own or not (cls.__mro__[own[0]].__module__ or "").startswith("torch"))
    for name, value in sorted(vars(cls).items()):
        f = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if name.startswith("_") or isinstance(value, property) or not callable(f) or isinstance(f, type):
            continue
        tell(f"{path}.{name}", f, method=True)


def main():
    warnings.simplefilter("ignore")
    told = set()
    for line in NAMES.read_text().splitlines():
        space, *names = line.split()
        owner = space_of(space)
        for name in names:
            value = getattr(owner, name, None)
            home = getattr(value, "__module__", None) or ""
            path = f"{space}.{name}"
            if isinstance(value, type):
                if home.startswith("torch") and not issubclass(type(value), type(torch.FloatTensor)):
                    tell_class(path, value, told)
            elif callable(value) and id(value) not in told:
                told.add(id(value))
                tell(path, value, method=space == "torch.Tensor")
    recording.write("callables.txt", "".join(row + "\n" for row in ROWS))


main()
