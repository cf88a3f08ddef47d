"""Functions of the standard library in Python: a capture interprets these where the C function would call Python or
would walk over a generator.
"""

from __future__ import annotations

from typing import Any

_missing: Any = object()


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


def list_(iterable: Any = ()) -> list:
    return [x for x in iterable]  # noqa: C416


def tuple_(iterable: Any = ()) -> tuple:
    all = [x for x in iterable]  # noqa: C416
    return (*all,)


def set_(iterable: Any = ()) -> set:
    return {x for x in iterable}  # noqa: C416


def dict_(*args: Any, **kwargs: Any) -> dict:
    made = {}
    for source in args:
        if isinstance(source, dict):
            for key in source.keys():  # noqa: SIM118
                made[key] = source[key]
        else:
            for key, value in source:
                made[key] = value
    for key, value in kwargs.items():
        made[key] = value
    return made


def zip_(*iterables: Any, strict: bool = False) -> Any:
    iterators = [iter(x) for x in iterables]
    while iterators:
        row = []
        for k, it in enumerate(iterators):
            try:
                row.append(next(it))
            except StopIteration:
                if strict and k:
                    raise ValueError(f"zip() argument {k + 1} is shorter than argument{'s 1-' if k > 1 else ' '}{k}") from None
                if strict:
                    for j, other in enumerate(iterators[1:]):
                        for _ in other:
                            raise ValueError(f"zip() argument {j + 2} is longer than argument 1")
                return
        yield (*row,)


def enumerate_(iterable: Any, start: int = 0) -> Any:
    n = start
    for x in iterable:
        yield n, x
        n += 1


def reversed_(sequence: Any) -> Any:
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
        for x in iterable:
            yield x


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
