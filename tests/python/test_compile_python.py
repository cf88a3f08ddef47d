"""Functions that follow Python's rules are one program, and give what they give plainly."""

import collections
import contextlib
import copy
import dataclasses
import enum
import itertools
import json
import logging
import re
import typing

import pytest

import facula
import facula.nn as nn


def test_builtins_that_look_at_the_frame_of_their_caller():
    outer = 3

    def f(x, n=2):
        y = x * outer
        del n
        names = sorted(locals()), dir(), vars()["y"] is y, globals() is f.__globals__
        exec("assert y is not None and outer == 3 and facula")
        return eval("y + outer + len(names)"), eval("y - 1"), names

    compiled = facula.compile(f)
    for k in range(3):
        want, got = f(facula.ones(2) * k), compiled(facula.ones(2) * k)
        assert facula.equal(got[0], want[0]) and facula.equal(got[1], want[1]) and got[2] == want[2]


def check(f, *args, whole=True):
    """Compares three calls of the compiled function with the function; returns the compiled one."""
    run = facula.compile(f, fullgraph=whole)
    for _ in range(3):
        assert_equal(run(*args), f(*args))
    report = run.report()
    assert report["captures"] >= 1 and not report["plain_runs"], report
    return run


def assert_equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, facula.Tensor):
        assert facula.equal(a, b)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_equal(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            assert_equal(a[k], b[k])
    elif hasattr(a, "__dict__") and type(a).__eq__ is object.__eq__:
        assert_equal(vars(a), vars(b))
    else:
        assert a == b


x = facula.tensor([1.0, -2.0, 3.0])


class Vector:
    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + other.data) if isinstance(other, Vector) else NotImplemented

    def __radd__(self, other):
        return Vector(self.data + other)

    def __iadd__(self, other):
        self.data = self.data + 2 * other
        return self

    def __neg__(self):
        return Vector(-self.data)

    def __eq__(self, other):
        return isinstance(other, Vector) and self.data is other.data

    __hash__ = None

    def __lt__(self, other):
        return len(self.data) < len(other.data)

    def __len__(self):
        return len(self.data)


def test_operators_of_classes_follow_python():
    def f(x):
        v, w = Vector(x), Vector(x.exp())
        u = -(v + w)
        u += x
        return (5 + u).data, v == w, v != w, v < w, v > w

    check(f, x)

    def wrong(x):
        return Vector(x) + 1

    for run in (wrong, facula.compile(wrong)):
        with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Vector' and 'int'"):
            run(x)


class Bold(Vector):
    def __radd__(self, other):
        return Vector(self.data * 100)


class Same(Vector):
    pass


def test_reflected_methods_come_first_if_a_subclass_overrides_them():
    def f(x):
        return (Vector(x) + Bold(x)).data, (Vector(x) + Same(2 * x)).data, (Same(x) + Vector(x)).data

    check(f, x)

    def wrong(x):
        return Vector(x) | 1

    for run in (wrong, facula.compile(wrong)):
        with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \|: 'Vector' and 'int'"):
            run(x)


class Truth:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value


def test_the_truth_of_an_object_is_what_its_class_says():
    def f(x):
        yes, no, empty = Truth(True), Truth(False), Vector([])
        y = x + 1 if yes else x
        if no or empty:
            y = y * 100
        if not no and yes:
            y = y + 10
        return y, (no or yes) is yes, (yes and no) is no, bool(yes), bool(empty)

    check(f, x)


class Lazy:
    def __init__(self, f):
        self.f = f

    def __get__(self, owner, kind=None):
        if owner is None:
            return self
        value = self.f(owner)
        setattr(owner, self.f.__name__, value)
        return value


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, kind):
        return getattr(owner, self.name)

    def __set__(self, owner, value):
        if value <= 0:
            raise ValueError(f"{self.name}: {value}")
        setattr(owner, self.name, value)


class Shape:
    side = Positive()

    def __init__(self, side):
        self.side = side

    @Lazy
    def area(self):
        return self.side**2

    def __getattr__(self, name):
        if name.startswith("times_"):
            return lambda x: x * int(name[6:])
        raise AttributeError(name)


def test_descriptors_and_getattr_of_classes_are_interpreted():
    def f(x):
        s = Shape(3)
        s.side = s.side + 1
        try:
            s.side = -1
        except ValueError as e:
            text = str(e)
        absent = getattr(s, "absent", "default"), hasattr(s, "absent"), hasattr(s, "times_2")
        return s.times_5(x) * s.area, s.area, text, absent, isinstance(Shape.area, Lazy)

    check(f, x)


Pair = collections.namedtuple("Pair", "first second")


class Named(typing.NamedTuple):
    data: facula.Tensor
    count: int = 2


@dataclasses.dataclass
class Config:
    scale: float
    names: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.twice = 2 * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object
    other: int = 3


def test_named_tuples_and_dataclasses_are_made():
    def f(x):
        p, n = Pair(x + 1, second=2), Named(x * 2)
        c, z = Config(1.5, names=["a"]), Frozen(x)
        a, b = p
        q = p._replace(second=7)
        return (p, q, n, n.count, a * b * c.twice, c.names, c == Config(1.5, ["a"]), z.value + z.other,
                dataclasses.replace(z, other=9).other)  # fmt: skip

    check(f, x)


def test_patterns_are_matched():
    def f(x, what):
        match what:
            case {"scale": s, **rest}:
                return x * s, len(rest)
            case Pair(a, 2):
                return a + x
            case Config(scale=s):
                return x - s
            case [first, *others]:
                return x + first, others
            case int(n) if n > 3:
                return x**n
            case str() | None:
                return x
        return -x

    for what in ({"scale": 3, "b": 1}, Pair(5, 2), Pair(5, 3), Config(0.5), [1, 2, 3], 4, 2, "text", None):
        check(f, x, what)


def test_generators_get_values_and_exceptions():
    def averages():
        total, count = 0, 0
        try:
            while True:
                value = yield total / max(count, 1)
                total, count = total + value, count + 1
        except KeyError:
            yield "caught"
        finally:
            count = -1

    def f(x):
        g = averages()
        next(g)
        results = [g.send(x), g.send(x + 2), g.throw(KeyError("key"))]
        ended = next(g, "end")
        h = averages()
        next(h)
        h.close()
        return results, ended, next(h, None)

    check(f, x)


@contextlib.contextmanager
def noted(log, name):
    log.append("enter " + name)
    try:
        yield len(log)
    except ValueError:
        log.append("error")
    finally:
        log.append("exit " + name)


def test_context_managers_of_generators_run_in_order():
    def f(x):
        log = []
        with noted(log, "a") as n, noted(log, "b"):
            y = x * n
        with noted(log, "c"):
            raise ValueError("inside")
        with contextlib.ExitStack() as stack:
            stack.enter_context(noted(log, "d"))
        with contextlib.nullcontext(3) as k:
            y = y + k
        return y, log

    check(f, x)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    def __getitem__(self, k):
        if k > 2:
            raise IndexError
        return 10 * k


def test_objects_are_iterated_by_their_methods():
    def f(x):
        for n in Countdown(3):
            x = x + n
        c = Countdown(2)
        first, rest = next(c), [*c]
        return (
            x,
            first,
            rest,
            next(c, "end"),
            list(Sequence()),
            [a + b for a, b in zip(Countdown(3), Sequence())],
        )

    check(f, x)


class Meta(type):
    def __call__(cls, *args):
        o = super().__call__(*args)
        o.count = len(args)
        return o


class Made(metaclass=Meta):
    def __new__(cls, *args):
        o = super().__new__(cls)
        o.made = True
        return o

    def __init__(self, value):
        self.value = value


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_classes_with_new_metaclasses_and_enumerations():
    def f(x, colour):
        m = Made(x + 1)
        if colour is Colour.RED:
            x = x * 2
        return m.value * x, m.made, m.count, colour.name, Colour.BLUE.value

    check(f, x, Colour.RED, whole=False)


class Settings:
    calls = 0
    mode = "a"


def test_writes_to_classes_and_deletions_are_repeated():
    settings = Settings()

    def f(x):
        settings.extra = x + 1
        y = settings.extra * 2
        del settings.extra
        Settings.mode = "b"
        return y

    check(f, x)
    Settings.mode = "a"
    run = facula.compile(f)
    for _ in range(3):
        Settings.mode = "a"
        run(x)
        assert Settings.mode == "b" and not hasattr(settings, "extra")


def test_containers_from_outside_are_extended_in_place():
    log, names, table = [], set(), {}

    def f(x):
        part = [x.sum(), 2]
        log.__iadd__([]) if False else None
        outer = log
        outer += part
        part.append("later")
        keys = names
        keys |= {"a"}
        entries = table
        entries |= {"k": x}
        return outer is log

    run = facula.compile(f, fullgraph=True)
    for n in range(1, 4):
        log.clear(), names.clear(), table.clear()
        assert run(x)
        assert len(log) == 2 and log[0] == 2 and names == {"a"} and list(table) == ["k"], n


def test_slices_and_sums_of_module_lists_are_captured():
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def f(x):
        for layer in layers[1:3]:
            x = layer(x)
        for layer in layers[:1] + layers[3:]:
            x = layer(x)
        return x

    check(f, x)


class Labelled(facula.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


def test_functions_of_a_subclass_of_tensor_run_plainly():
    def f(t):
        return nn.functional.sigmoid(facula.exp(t)) + 1

    t = x.as_subclass(Labelled)
    run = facula.compile(f)
    for _ in range(2):
        got, want = run(t), f(t)
        assert type(got) is type(want) and facula.equal(
            got.as_subclass(facula.Tensor), want.as_subclass(facula.Tensor)
        )


def test_a_generator_goes_on_behind_breaks_of_its_body_and_of_its_consumer():
    def parts(x, n):
        for k in range(n):
            facula._dynamo.graph_break()
            y = x + k
            yield y * 2
        facula._dynamo.graph_break()

    def f(x, n):
        total = x
        for part in parts(x, n):
            total = total + part
            facula._dynamo.graph_break()
            total = total * 2
        return total, sum(p.sum() for p in parts(x, n))

    run = facula.compile(f)
    for _ in range(4):
        for n in (3, 2):
            assert_equal(run(x, n), f(x, n))
            assert_equal(run(x + 1, n), f(x + 1, n))


def test_loggers_that_write_nothing_and_json_divide_no_program():
    log = logging.getLogger("facula.tests.quiet")
    log.setLevel(logging.WARNING)
    log.isEnabledFor(logging.DEBUG), log.isEnabledFor(logging.INFO)  # it remembers the answers

    def f(x, options):
        log.debug("x is %s", x)
        logging.getLogger("facula.tests.quiet").info("scale %s", options)
        return x * json.loads(json.dumps(options))["scale"]

    check(f, x, {"scale": 2, "names": ["a", None]})
    log.setLevel(logging.DEBUG)  # a compiled function sees it

    class Records(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())

    seen, run = [], facula.compile(f)
    log.addHandler(Records())
    for _ in range(3):
        assert_equal(run(x, {"scale": 3}), x * 3)
    assert len(seen) == 6 and seen[1] == "scale {'scale': 3}"


class Number(int):
    """An int whose membership in a set divides a program."""


ONE, OTHER = Number(1), Number(2)


def test_methods_of_containers_that_are_kept_in_variables_write_behind_breaks():
    def emit_all(numbers, known):
        code, seen, by_name = [], set(), {}
        emit, note, store = code.append, seen.add, by_name.__setitem__
        for n in numbers:
            if ONE in known:
                emit(n)
                note(n)
                store(n, len(code))
        return code, seen, by_name

    run = facula.compile(emit_all)
    for numbers in ([5, 5, 5], [5, 6, 5, 5], [1, 2, 1, 2], [5, 5, 5]):
        assert run(numbers, {ONE}) == emit_all(numbers, {ONE})
        assert run(numbers, {OTHER}) == ([], set(), {})


def test_iterators_of_lists_that_grow_behind_a_break_keep_their_positions():
    class Pattern:
        def __init__(self):
            self.items = []

        def add(self, item):
            self.items.append(item)

        def width(self, known):
            total = 0
            for item in self.items:
                total += item + (ONE in known)
            for item in reversed(self.items):
                total += item * 100 * (ONE in known)
            return total

    def f(a, b, known):
        pattern = Pattern()
        assert ONE in known
        pattern.add(a)
        pattern.add(b)
        return pattern.width(known), pattern.items

    run = facula.compile(f)
    for a, b in [(3, 4), (3, 4), (5, 6), (3, 4), (7, 7)]:
        assert run(a, b, {ONE}) == f(a, b, {ONE})


def test_a_deque_that_crosses_a_break_keeps_its_items():
    def f(x, known, maximum):
        items = collections.deque([1, x], maxlen=maximum)
        items.append(x + 1)
        assert ONE in known
        items.append(x * 2)
        return items

    run = facula.compile(f)
    for maximum in (None, 3, 3, None):
        for k in range(3):
            x = facula.ones(2) * k
            got, want = run(x, {ONE}, maximum), f(x, {ONE}, maximum)
            assert got.maxlen == want.maxlen
            assert_equal([facula.as_tensor(v) for v in got], [facula.as_tensor(v) for v in want])


def test_frames_of_tracebacks_of_nested_functions_can_be_read():
    def of(limit):
        def f(x):
            if x.shape[0] > limit:
                raise ValueError(limit)
            return x

        return f

    run = facula.compile(of(3))
    with pytest.raises(ValueError) as e:
        run(facula.ones(4))
    frames = []
    trace = e.value.__traceback__
    while trace:
        frames.append((trace.tb_frame.f_code.co_qualname, dict(trace.tb_frame.f_locals)))
        trace = trace.tb_next
    assert frames[-1][0].endswith("of.<locals>.f")


def test_expressions_of_re_are_compiled_by_python():
    def f(x, pattern, text):
        found = re.search(pattern, text)
        return x + 1 if found else x - 1, found and found.group()

    run = facula.compile(f)
    x = facula.ones(2)
    for text in ("it seems unused", "appears to not have been used", "no"):
        for pattern in ("unused|not have been used", "a(b|c)+d", "n.t"):
            re.purge()
            assert_equal(run(x, pattern, text), f(x, pattern, text))


def test_tuples_in_a_deque_and_in_the_state_of_an_iterator_cross_a_break():
    import numpy as np

    def f(x):
        items, numbers = collections.deque([(1, 2), (3, 4)]), itertools.cycle([1, 2, 3])
        next(numbers)
        np.zeros(1)  # a break
        return x * next(numbers), list(items)

    compiled = facula.compile(f)
    for k in range(3):
        x = facula.ones(2) + k
        want, got = f(x), compiled(x)
        assert want[0].tolist() == got[0].tolist() and want[1] == got[1]


def test_an_iterator_of_a_tuple_goes_on_in_the_program_behind_a_break():
    @facula.compiler.disable
    def opaque(x):
        return x

    def f(x, values):
        it = iter(values)
        x = x + next(it)
        x = opaque(x)
        x = x * next(it) + next(it)
        try:
            x = x - next(it)
        except StopIteration:
            x = x * 100
        return x, next(it, None), it

    run, x = facula.compile(f), facula.ones(2)
    for values in (
        (1, 2, 3, 4, 5),
        (1, 2, 3, 4),
        (1, 2, 3),
        (5, 6, 7, 8, 9),
        (1.5, 2, 3, 4, x * 3),
        (1, 2, x, 4),
    ):
        for _ in range(2):
            (y, last, it), (want, want_last, want_it) = run(x, values), f(x, values)
            assert facula.equal(y, want) and list(it) == list(want_it)
            assert facula.equal(last, want_last) if isinstance(last, facula.Tensor) else last == want_last
    assert sum("next" in b for b in run.report()["breaks"]) <= 1, run.report()


def test_the_parameters_of_a_new_module_are_those_of_the_same_program():
    @facula.compiler.disable
    def renewed(net):
        return copy.deepcopy(net)

    def f(net, x):
        new = renewed(net)
        loss = new(x).square().sum()
        grads = facula.autograd.grad(loss, new.parameters())
        return loss, sum(g.sum() for g in grads), len(list(new.parameters())), len(list(new.modules()))

    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    run, x = facula.compile(f), facula.ones(4, 2)
    for _ in range(4):
        assert_equal(run(net, x), f(net, x))
    captures = run.report()["captures"]
    net[2].weight = nn.Parameter(net[2].weight.detach().clone())
    assert_equal(run(net, x), f(net, x))
    assert run.report()["captures"] == captures <= 2
    net.append(net[0])  # a module and its parameters once more
    net[0] = net[0]
    assert_equal(run(nn.Sequential(net[0], net[1], net[2]), x), f(nn.Sequential(net[0], net[1], net[2]), x))
    tied = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    want = f(tied, x)
    assert_equal(run(tied, x), want)
    tied[2].weight = tied[0].weight
    assert_equal(run(tied, x), f(tied, x))
    assert run(tied, x)[2] == 3


def test_sets_are_made_of_the_items_of_generators_and_lists():
    def f(x, modules, values):
        few = {*modules[0].modules(), *modules}
        return x * len(few) + len({*(v * 2 for v in values), *values}), sorted({*values})

    run, x = facula.compile(f, fullgraph=True), facula.ones(2)
    a, b = nn.Sequential(nn.ReLU(), nn.Tanh()), nn.ReLU()
    for given in (([a, b], (1, 2)), ([a, a[0]], (1, 2)), ([a, b, b], (1, 2, 4)), ([b], ())):
        for _ in range(2):
            assert_equal(run(x, *given), f(x, *given))


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: len({a, b, c}),
        lambda a, b, c: len({a: 1, b: 2, c: 3}),
        lambda a, b, c: len(set([a, b, c])),
        lambda a, b, c: len({k: 1 for k in (a, b, c)}),
        lambda a, b, c: len({k for k in (a, b, c)}),
        lambda a, b, c: len({a} | {b} | {c}),
        lambda a, b, c: len({a, b} - {c}),
        lambda a, b, c: len({a}.union([b], {c})),
        lambda a, b, c: len(dict([(a, 1), (b, 2), (c, 3)])),
        lambda a, b, c: len(dict(zip((a, b, c), (1, 2, 3)))),
        lambda a, b, c: len(set({a: 1, b: 2}.keys()) | {c}),
        lambda a, b, c: len(set(iter([a, b, c]))),
        lambda a, b, c: (s := set(), s.add(a), s.add(b), s.add(c), len(s))[-1],
        lambda a, b, c: (s := {a}, s.update([b, c]), len(s))[-1],
        lambda a, b, c: (s := {a, b}, s.discard(c), len(s))[-1],
        lambda a, b, c: len(collections.OrderedDict([(a, 1), (b, 2), (c, 3)])),
        lambda a, b, c: len(frozenset([a, b, c])) if type(a) is int else len({a, *(b, c)}),
        lambda a, b, c: len({*[object] * 3, *range(9), a, b, c}),
    ],
)
@pytest.mark.parametrize("kind", [nn.ReLU, lambda: facula.ones(1), object])
def test_equal_arguments_are_one_element_of_a_set(f, kind):
    a, b, c = kind(), kind(), kind()
    run, x = facula.compile(lambda x, *args: x * f(*args)), facula.ones(1)
    for args in ((a, b, c), (a, a, c), (a, b, a), (b, c, c), (a, a, a), (kind(), b, c), (c, b, a)):
        for _ in range(2):
            assert run(x, *args).item() == f(*args)


def test_a_set_that_is_made_here_tells_objects_apart():
    def f(x, a, b, c):
        seen = set()
        for k, o in enumerate((a, b, c)):
            if o not in seen:
                seen.add(o)
                x = x * 2 + k
        return x

    run, x = facula.compile(f, fullgraph=True), facula.ones(2)
    a, b, c = nn.ReLU(), nn.Tanh(), facula.ones(3)
    for given in (
        (a, b, c),
        (a, a, c),
        (a, b, a),
        (c, c, c),
        (nn.ReLU(), b, c),
        (b, b, c),
        (a, b, facula.ones(3)),
    ):
        for _ in range(2):
            assert facula.equal(run(x, *given), f(x, *given))
    captures = run.report()["captures"]
    assert facula.equal(run(x, nn.ReLU(), nn.Tanh(), c), f(x, a, b, c))
    assert run.report()["captures"] == captures


def test_super_has_its_class_where_a_part_of_the_function_runs_plainly():
    def f(mean, covariance):  # constructors call super() behind breaks at their checks
        return facula.distributions.MultivariateNormal(mean, covariance).mean

    compiled, mean, covariance = facula.compile(f), facula.tensor([1.0, 2.0]), facula.eye(2)
    for _ in range(8):
        assert compiled(mean, covariance).tolist() == [1, 2]
    assert compiled.report()["plain_runs"]
