"""Functions of the standard library in Python: a capture interprets these where the C function would call
Python or would walk over a generator.
"""

from __future__ import annotations

import collections
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

_missing: Any = object()


def call_(f: Any, *args: Any) -> Any:
    return f(*args)


def any_(iterable: Any) -> bool:
    for x in iterable:  # noqa: SIM110
        if x:
            return True
    return False


def all_(iterable: Any) -> bool:
    for x in iterable:  # noqa: SIM110
        if not x:
            return False
    return True


def sum_(iterable: Any, start: Any = 0) -> Any:
    total = start
    for x in iterable:
        total = total + x
    return total


def min_(*args: Any, key: Any = None, default: Any = _missing) -> Any:
    items = args if len(args) > 1 else args[0]
    best, is_first = default, True
    for x in items:
        if is_first or (x < best if key is None else key(x) < key(best)):
            best, is_first = x, False
    if is_first and default is _missing:
        raise ValueError("min() arg is an empty sequence")
    return best


def max_(*args: Any, key: Any = None, default: Any = _missing) -> Any:
    items = args if len(args) > 1 else args[0]
    best, is_first = default, True
    for x in items:
        if is_first or (x > best if key is None else key(x) > key(best)):
            best, is_first = x, False
    if is_first and default is _missing:
        raise ValueError("max() arg is an empty sequence")
    return best


def abs_(x: Any) -> Any:
    return x.__abs__()


def pow_(x: Any, y: Any) -> Any:
    return x**y


def bisect_left_(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    return _bisect(a, lo, hi, key, lambda item: item < x)


def bisect_right_(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    return _bisect(a, lo, hi, key, lambda item: not x < item)


def _bisect(a: Any, lo: int, hi: int | None, key: Any, is_before: Callable[[Any], bool]) -> int:
    """Returns the first place from ``lo`` on whose item is not before the one that is looked for."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    end = len(a) if hi is None else hi
    while lo < end:
        middle = (lo + end) // 2
        if is_before(a[middle] if key is None else key(a[middle])):
            lo = middle + 1
        else:
            end = middle
    return lo


def list_(iterable: Any = ()) -> list:
    return [x for x in iterable]  # noqa: C416


def tuple_(iterable: Any = ()) -> tuple:
    all = [x for x in iterable]  # noqa: C416
    return (*all,)


def warn_(message: str, category: type, file: str, line: int, module: str) -> None:
    """Warns of a line that a capture has interpreted."""
    of = sys.modules.get(module)
    registry = {} if of is None else vars(of).setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, module, registry)


def set_(iterable: Any = ()) -> set:
    return {x for x in iterable}  # noqa: C416


def dict_(*args: Any, **kwargs: Any) -> dict:
    mapping = {}
    for source in args:
        if hasattr(source, "keys"):
            for key in source.keys():  # noqa: SIM118
                mapping[key] = source[key]
        else:
            for key, value in source:
                mapping[key] = value
    for key, value in kwargs.items():
        mapping[key] = value
    return mapping


def zip_(*iterables: Any, strict: bool = False) -> Any:
    iterators = [iter(x) for x in iterables]
    while iterators:
        row = []
        for k, it in enumerate(iterators):
            try:
                row.append(next(it))
            except StopIteration:
                if not strict:
                    return
                if k:
                    before = f"s 1-{k}" if k > 1 else " 1"
                    raise ValueError(f"zip() argument {k + 1} is shorter than argument{before}") from None
                for j, other in enumerate(iterators[1:]):
                    for _ in other:
                        raise ValueError(f"zip() argument {j + 2} is longer than argument 1") from None
                return
        yield (*row,)


def enumerate_(iterable: Any, start: int = 0) -> Any:
    n = start
    for x in iterable:
        yield n, x
        n += 1


def reversed_(sequence: Any) -> Any:
    method = getattr(type(sequence), "__reversed__", None)
    return _backwards(sequence) if method is None else method(sequence)


def _backwards(sequence: Any) -> Any:
    for k in range(len(sequence) - 1, -1, -1):
        yield sequence[k]


def map_(f: Any, *iterables: Any) -> Any:
    if len(iterables) == 1:
        for x in iterables[0]:
            yield f(x)
        return
    for row in zip(*iterables):
        yield f(*row)


def filter_(f: Any, iterable: Any) -> Any:
    for x in iterable:
        if x if f is None else f(x):
            yield x


def reduce_(f: Any, iterable: Any, initial: Any = _missing) -> Any:
    value = initial
    for x in iterable:
        value = x if value is _missing else f(value, x)
    if value is _missing:
        raise TypeError("reduce() of empty iterable with no initial value")
    return value


def chain_(*iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def repeat_(x: Any, times: int | None = None) -> Any:
    k = 0
    while times is None or k < times:
        yield x
        k += 1


def islice_(iterable: Any, *args: Any) -> Any:
    bounds = slice(*args)
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    k, wanted = 0, start
    if stop is not None and start >= stop:
        return
    for x in iterable:
        if k == wanted:
            yield x
            wanted += step
        k += 1
        if stop is not None and k >= stop:
            return


def operator_add(a: Any, b: Any) -> Any:
    return a + b


def operator_sub(a: Any, b: Any) -> Any:
    return a - b


def operator_mul(a: Any, b: Any) -> Any:
    return a * b


def operator_truediv(a: Any, b: Any) -> Any:
    return a / b


def operator_matmul(a: Any, b: Any) -> Any:
    return a @ b


def operator_neg(a: Any) -> Any:
    return -a


def operator_getitem(a: Any, b: Any) -> Any:
    return a[b]


# Python's rules for operators, truth, iteration and patterns, where methods of classes decide.


def _has(kind: type, name: str) -> bool:
    """Tells whether the class has a method: `type` has __or__, too, which is no method of instances."""
    if not hasattr(kind, name):
        return False
    return not name.endswith("or__") or getattr(getattr(kind, name), "__self__", None) is not kind


def operate_(a: Any, b: Any, name: str, reflected: str, in_place: str | None, sign: str) -> Any:
    """Returns ``a + b``, or ``a += b`` if there is a name ``in_place``."""
    left, right = type(a), type(b)
    if in_place is not None and _has(left, in_place):
        value = getattr(left, in_place)(a, b)
        if value is not NotImplemented:
            return value
    is_open = right is not left and _has(right, reflected)
    is_first = (
        is_open
        and issubclass(right, left)
        and (not _has(left, reflected) or getattr(right, reflected) is not getattr(left, reflected))
    )
    if is_first or (is_open and not _has(left, name)):
        value = getattr(right, reflected)(b, a)
        if value is not NotImplemented:
            return value
        is_open = False
    if _has(left, name):
        value = getattr(left, name)(a, b)
        if value is not NotImplemented:
            return value
    if is_open:
        value = getattr(right, reflected)(b, a)
        if value is not NotImplemented:
            return value
    if sign == "**":
        sign = "** or pow()"
    raise TypeError(f"unsupported operand type(s) for {sign}: '{left.__name__}' and '{right.__name__}'")


def _compared(kind: type, a: Any, b: Any, name: str) -> Any:
    if name == "__ne__" and kind.__ne__ is object.__ne__:
        value = kind.__eq__(a, b)
        return value if value is NotImplemented else not value
    return getattr(kind, name)(a, b)


def compare_(a: Any, b: Any, name: str, reflected: str, sign: str) -> Any:
    left, right = type(a), type(b)
    is_first = right is not left and issubclass(right, left)
    if is_first:
        value = _compared(right, b, a, reflected)
        if value is not NotImplemented:
            return value
    value = _compared(left, a, b, name)
    if value is not NotImplemented:
        return value
    if not is_first:
        value = _compared(right, b, a, reflected)
        if value is not NotImplemented:
            return value
    if name == "__eq__":
        return a is b
    if name == "__ne__":
        return a is not b
    raise TypeError(f"'{sign}' not supported between instances of '{left.__name__}' and '{right.__name__}'")


def bool_(o: Any) -> bool:
    kind = type(o)
    if not hasattr(kind, "__bool__"):
        return len(o) != 0
    value = kind.__bool__(o)
    if value is True or value is False:
        return value
    raise TypeError(f"__bool__ should return bool, returned {type(value).__name__}")


def getattr_(o: Any, name: str, default: Any) -> Any:
    try:
        return getattr(o, name)
    except AttributeError:
        return default


def hasattr_(o: Any, name: str) -> bool:
    try:
        getattr(o, name)
    except AttributeError:
        return False
    return True


def next_(iterator: Any, default: Any) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        return default


def advance_(iterator: Any) -> Any:
    kind = type(iterator)
    while True:
        try:
            value = kind.__next__(iterator)
        except StopIteration:
            return
        yield value


def items_(sequence: Any) -> Any:
    kind, k = type(sequence), 0
    while True:
        try:
            value = kind.__getitem__(sequence, k)
        except IndexError:
            return
        yield value
        k += 1


def iter_(o: Any) -> Any:
    """Returns an iterator for a loop, which nobody else sees."""
    kind = type(o)
    if not hasattr(kind, "__iter__"):
        return items_(o)
    iterator = kind.__iter__(o)
    return advance_(iterator) if isinstance(type(iterator).__next__, types.FunctionType) else iterator


def close_(generator: Any) -> None:
    try:
        generator.throw(GeneratorExit())
    except (GeneratorExit, StopIteration):
        return
    raise RuntimeError("generator ignored GeneratorExit")


def construct_(cls: Any, *args: Any, **kwargs: Any) -> Any:
    o = cls.__new__(cls, *args, **kwargs)
    if isinstance(o, cls):
        type(o).__init__(o, *args, **kwargs)
    return o


_MATCHES_ITSELF = 1 << 22  # a flag of classes: a pattern with one position matches the object itself


def match_class_(subject: Any, cls: Any, count: int, names: tuple) -> tuple | None:
    """Returns the attributes that the pattern ``cls(...)`` with ``count`` positions and these names takes."""
    if not isinstance(subject, cls):
        return None
    if count == 1 and not hasattr(cls, "__match_args__") and cls.__flags__ & _MATCHES_ITSELF:
        values = [subject]
    else:
        values = []
        positions = getattr(cls, "__match_args__", ())
        if count > len(positions):
            plural = "" if len(positions) == 1 else "s"
            raise TypeError(
                f"{cls.__name__}() accepts {len(positions)} positional sub-pattern{plural} ({count} given)"
            )
        names = (*positions[:count], *names)
    for name in names:
        try:
            values.append(getattr(subject, name))
        except AttributeError:
            return None
    return (*values,)


def match_keys_(subject: Any, keys: tuple) -> tuple | None:
    values = []
    for key in keys:
        value = subject.get(key, _missing)
        if value is _missing:
            return None
        values.append(value)
    return (*values,)


def ordered_dict_(*args: Any, **kwargs: Any) -> Any:
    mapping: Any = collections.OrderedDict()
    for key, value in dict_(*args, **kwargs).items():
        mapping[key] = value
    return mapping


def new_tuple_(cls: Any, iterable: Any) -> Any:
    return tuple.__new__(cls, tuple_(iterable))


def deque_(iterable: Any = (), maxlen: Any = None) -> Any:
    items: Any = collections.deque((), maxlen)
    for x in iterable:
        items.append(x)
    return items


def default_item_(mapping: Any, key: Any) -> Any:
    factory = mapping.default_factory
    if factory is None:
        raise KeyError(key)
    value = factory()
    mapping[key] = value
    return value


def defaultdict_(factory: Any = None, *args: Any, **kwargs: Any) -> Any:
    mapping: Any = collections.defaultdict(factory)
    for key, value in dict_(*args, **kwargs).items():
        mapping[key] = value
    return mapping
