"""Random functions and classes, plain and compiled: equal results, side effects, output, exceptions and their
lines, gradients, and states of the generator.

FACULA_COMPILE_PROGRAMS sets how many are drawn; a failure prints the seed and the source.
"""

import contextlib
import io
import linecache
import math
import os
import random
import traceback

import pytest

import facula

PROGRAMS = int(os.environ.get("FACULA_COMPILE_PROGRAMS", "60"))


class Writer:
    """Draws the source of a module with a class `State` and a function `f(x, y, n, state)`."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines, self.names, self.depth, self.loops = [], 0, 0, 0

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def pick(self, *choices):
        return self.r.choice(choices)

    def tensor(self, tensors, depth=0):
        r = self.r.random()
        if depth > 2 or r < 0.3:
            return self.pick(*tensors)
        a = self.tensor(tensors, depth + 1)
        if r < 0.6:
            return f"({a} {self.pick('+', '-', '*')} {self.tensor(tensors, depth + 1)})"
        if r < 0.75:
            return f"({a} {self.pick('+', '*')} {self.number()})"
        if r < 0.9:
            return f"{a}.{self.pick('sin', 'tanh', 'relu', 'abs')}()"
        return self.pick(
            f"state.scaled({a})",
            f"helper({a}, k={self.number()})",
            f"facula.where({a} > 0, {a}, x)",
            f"(lambda t: t * {self.number()} + y)({a})",
        )

    def number(self):
        return self.pick("2", "0.5", "n", "state.count", "len(state.items)", "(n + 1)", "BASE", "max(n, 2)")

    def condition(self):
        return self.pick(
            "n > 1",
            "state.count % 2 == 0",
            "x.shape[0] > 2",
            "len(state.items) > 2",
            "n in (0, 2)",
            "'a' in state.table",
            "isinstance(state, State)",
            "state.flag is None",
            "x.dtype == y.dtype",
            "not state.items",
            "n and state.count",
        )

    def block(self, tensors, size):
        tensors = list(tensors)
        for _ in range(size):
            self.statement(tensors)
        return tensors

    def statement(self, tensors):
        kinds = ["assign"] * 4 + [
            "if",
            "for",
            "effect",
            "effect",
            "container",
            "try",
            "with",
            "closure",
            "break",
            "inplace",
            "object",
            "match",
            "generator",
            "records",
            "loop",
            "text",
            "random",
            "sets",
            "arguments",
        ]
        kind = self.pick(*kinds) if self.depth < 4 else self.pick("assign", "effect", "container")
        getattr(self, kind + "_")(tensors)

    def assign_(self, tensors):
        name = self.name()
        self.line(f"{name} = {self.tensor(tensors)}")
        tensors.append(name)

    def inplace_(self, tensors):
        name = self.name()
        self.line(f"{name} = {self.tensor(tensors)} * 1")
        self.line(
            self.pick(
                f"{name} += {self.number()}",
                f"{name}.mul_({self.number()})",
                f"{name}[0] = 2.0",
                f"{name}[:1] *= x[0]",
            )
        )
        tensors.append(name)

    def body(self, tensors, size=None):
        self.depth += 1
        self.block(tensors, size or self.r.randint(1, 2))
        self.depth -= 1

    def if_(self, tensors):
        name = self.name()
        self.line(f"{name} = x")
        self.line(f"if {self.condition()}:")
        self.body(tensors)
        self.depth += 1
        self.line(f"{name} = {self.tensor(tensors)}")
        self.depth -= 1
        if self.r.random() < 0.5:
            self.line("else:")
            self.body(tensors)
        tensors.append(name)

    def for_(self, tensors):
        if self.loops > 1:
            return self.assign_(tensors)
        self.loops += 1
        k, total = self.name(), self.name()
        self.line(f"{total} = {self.tensor(tensors)}")
        items = self.pick(
            "range(2)", "range(n)", "[1, 2, 3]", "list(state.items)[:2]", "x.shape", "numbers(3)"
        )
        self.line(f"for {k} in {items}:")
        self.depth += 1
        self.line(f"{total} = {total} * 0.5 + {k}")
        if self.r.random() < 0.4:
            self.line(f"if {k} == {self.r.randint(0, 2)}:")
            self.line("    " + self.pick("break", "continue"))
        self.block([*tensors, total], self.r.randint(0, 2))
        self.depth -= 1
        tensors.append(total)
        self.loops -= 1

    def effect_(self, tensors):
        value = self.number()
        self.line(
            self.pick(
                f"state.count += {self.pick('1', '2', 'n')}",
                f"state.items.append({value})",
                f"state.table[{self.pick('n', repr('a'), repr('b'))}] = {value}",
                f"log.append(({value}, 'seen'))",
                f"state.last = {self.tensor(tensors)}",
                f"state.kept.append({self.tensor(tensors)})",
                "state.items.clear()",
                "state.table.pop('a', None)",
                "state.flag = n",
                "bump()",
                "state.both = state.items",
                "state.items = [*state.items, n]",
                "state.size = x.size(0)",
            )
        )

    def container_(self, tensors):
        name = self.name()
        a, b = self.tensor(tensors), self.tensor(tensors)
        self.line(
            f"{name} = "
            + self.pick(
                f"[{a}, {b}][n % 2]",
                f"{{'p': {a}, 'q': {b}}}['p']",
                f"sum([t * k for k, t in enumerate(({a}, {b}))])",
                f"dict(a={a}).get('a')",
                f"[t for t in ({a}, {b}) if t.shape == x.shape][0]",
                f"next(iter(map(lambda t: t + 1, [{a}])))",
                f"max([({a}), ({b})], key=lambda t: t.ndim)",
                f"(({a}), *[{b}])[-1]",
                f"list(zip([{a}], [{b}]))[0][1]",
            )
        )
        tensors.append(name)

    def try_(self, tensors):
        name = self.name()
        self.line(f"{name} = y")
        self.line("try:")
        self.body(tensors, 1)
        self.depth += 1
        self.line(f"if {self.condition()}:")
        self.line(
            "    "
            + self.pick("raise KeyError(n)", "state.table['missing']", "[][n]", "raise State.Problem('p')")
        )
        self.line(f"{name} = {self.tensor(tensors)}")
        self.depth -= 1
        self.line(
            f"except {self.pick('KeyError', '(KeyError, IndexError)', 'State.Problem', 'LookupError as e')}:"
        )
        self.depth += 1
        self.line("log.append('caught')")
        self.depth -= 1
        if self.r.random() < 0.3:
            self.line("finally:")
            self.line("    state.count += 1")
        tensors.append(name)

    def with_(self, tensors):
        name = self.name()
        self.line(f"with {self.pick('facula.no_grad()', 'state', 'state', 'managed(log)')}:")
        self.depth += 1
        self.line(f"{name} = {self.tensor(tensors)}")
        self.block([*tensors, name], self.r.randint(0, 1))
        self.depth -= 1
        tensors.append(name)

    def closure_(self, tensors):
        name, result = self.name(), self.name()
        self.line(f"def {name}(t, by={self.pick('2', 'n')}):")
        self.depth += 1
        if self.r.random() < 0.4:
            self.line("nonlocal n")
            self.line("n = n + 1")
        self.line(f"return t * by + {self.tensor(tensors)}")
        self.depth -= 1
        self.line(f"{result} = {name}({self.tensor(tensors)})")
        tensors.append(result)

    def object_(self, tensors):
        """Operators, truth, iteration and attributes that a class decides."""
        name, other = self.name(), self.name()
        a, b = self.tensor(tensors), self.tensor(tensors)
        self.line(f"{other} = Vector({a})")
        self.line(
            f"{name} = "
            + self.pick(
                f"({other} + Vector({b})).data",
                f"({self.number()} + {other}).data",
                f"(-{other}).data if {other} else {b}",
                f"{other}.twice if {other} == {other} else {b}",
                f"({other} or {b}).data",
                f"{other}.scaled_3({b})",
                f"{other}[0] * 2 + {b}",
                f"sum({other}) if not {other} < {other} else {b}",
                f"{other}({b})",
                f"getattr({other}, 'missing', {b})",
            )
        )
        self.line(
            self.pick(
                f"{other}.data = {b}",
                f"{other} += {b}",
                f"del {other}",
                f"Vector.made += {self.pick('1', 'n')}",
            )
        )
        tensors.append(name)

    def match_(self, tensors):
        name = self.name()
        subject = self.pick(
            "n", "(n, x)", "{'k': n, 'x': x}", "Point(n, x)", "Entry(x, n)", "state.items", "state.flag"
        )
        self.line(f"{name} = y")
        self.line(f"match {subject}:")
        for case in self.r.sample(
            [
                "int(k) if k > 1",
                "(k, t)",
                "{'k': k, **rest}",
                "Point(0, t)",
                "Point(first=k)",
                "Entry(t, number=k)",
                "[k, *rest]",
                "None | 'a'",
                "[]",
            ],
            4,
        ):
            self.line(f"    case {case}:")
            self.depth += 2
            self.line(
                f"{name} = {self.tensor(tensors)}" + (" + k" if "k" in case and "'a'" not in case else "")
            )
            self.depth -= 2
        tensors.append(name)

    def generator_(self, tensors):
        name, g = self.name(), self.name()
        a, b = self.tensor(tensors), self.tensor(tensors)
        self.line(f"{g} = averages(log)")
        self.line(f"next({g})")
        self.line(f"{name} = {g}.send({a}) + {g}.send({b})")
        self.line(
            self.pick("pass", f"{g}.close()", f"{g}.throw(KeyError('k'))", f"{name} = {name} + next({g}, 1)")
        )
        if self.r.random() < 0.3:
            self.line(f"{name} = {name} + sum(t * 2 for t in both({a}, x))")
        tensors.append(name)

    def records_(self, tensors):
        name = self.name()
        a, b = self.tensor(tensors), self.tensor(tensors)
        self.line(
            f"{name} = "
            + self.pick(
                f"Point({self.number()}, {a}).second",
                f"Point(1, {a})._replace(first=n).second * Point(n, y).first",
                f"Entry({a}).tensor + Entry({b}, number=n).number",
                f"dataclasses.replace(Entry({a}), tensor={b}).tensor",
                f"Frozen({a}, n).value",
                f"{{**{{'a': {a}}}, 'b': {b}}}['a']",
                f"dict(zip('ab', ({a}, {b})))['b']",
                f"collections.OrderedDict(a={a}).pop('a')",
                f"Cached({a}).total + Cached({b}).total",
                f"Meta('M', {a}).tensor",
            )
        )
        tensors.append(name)

    def loop_(self, tensors):
        name, k = self.name(), self.name()
        self.line(f"{name}, {k} = {self.tensor(tensors)}, 0")
        self.line(f"while {k} < {self.pick('n', '2', 'len(state.items) % 4')}:")
        self.line(f"    {k} += 1")
        self.line(f"    {name} = {name} * 0.5 + {self.tensor([*tensors, name])}")
        if self.r.random() < 0.3:
            self.line("else:")
            self.line(f"    {name} = {name} + 1")
        tensors.append(name)

    def text_(self, tensors):
        self.line(
            self.pick(
                "log.append(f'{n:03d} {x.shape} {state.count!r}')",
                "log.append('%d of %s' % (n, state.items))",
                "log.append('-'.join(str(k) for k in state.items))",
                "log.append(' a b '.strip().split()[0].upper())",
                "print('n is', n)",
                "log.append(sorted(state.table, key=str))",
                "log.append(type(state).__name__ + State.__doc__)",
                "log.append(repr(Point(n, 1)))",
            )
        )

    def random_(self, tensors):
        name = self.name()
        a = self.tensor(tensors)
        self.line(
            f"{name} = "
            + self.pick(
                f"facula.dropout({a}, 0.5, True)",
                f"{a} + facula.rand_like({a})",
                f"{a} * facula.randn(2)",
                f"facula.nn.functional.dropout({a}, 0.3)",
            )
        )
        tensors.append(name)

    def sets_(self, tensors):
        self.line(
            self.pick(
                "state.seen |= {n}",
                "state.seen.add(n)",
                "state.items += [n]",
                "state.items[:1] = [n, 2]",
                "state.table.update(a=n)",
                "state.table |= {'b': 2}",
                "log.append({k: v for k, v in state.table.items()})",
                "log.append(sorted({n} | {1, 2}))",
                "del state.items[:1]",
                "state.items.extend(k for k in range(n))",
                "State.shared = n",
                "state.groups[n % 2].append(n)",
                "setattr(state, 'extra', n)",
                "log.append(getattr(state, 'extra', 'none'))",
                "state.double = n",
                "a, *b = [n, *state.items]; log.append(b)",
                "log.append(n if n else None)",
                "assert n >= 0, 'negative'",
            )
        )

    def arguments_(self, tensors):
        name = self.name()
        a, b = self.tensor(tensors), self.tensor(tensors)
        self.line(
            f"{name} = "
            + self.pick(
                f"spread(*[{a}, {b}], k=n)",
                f"spread({a}, **{{'k': 2, 'j': n}})",
                f"functools.partial(spread, {a})({b})",
                f"functools.reduce(lambda s, t: s + t, [{a}, {b}])",
                f"counted({a})",
                f"spread(*(t for t in ({a}, {b})))",
                f"State.made({a})",
                f"state.fixed({a})",
            )
        )
        tensors.append(name)

    def break_(self, tensors):
        if self.r.random() < 0.5:
            return self.assign_(tensors)
        t = self.tensor(tensors)
        self.line(
            self.pick(
                f"log.append(int(({t}).sum() > 0.1))",
                f"opaque(log, {self.number()})",
                f"state.count += int(({t}).sum() > 0)",
            )
        )

    def module(self):
        self.lines = HEADER.splitlines()
        self.line("def f(x, y, n, state):")
        self.depth = 1
        tensors = self.block(["x", "y"], self.r.randint(3, 8))
        last, several = tensors[-1], ", ".join(tensors[-3:])
        result = self.pick(last, f"({several}, n)", f"[{last}, state.count]", f"{{1: {last}, 2: x}}")
        self.line(f"return {result}")
        return "\n".join(self.lines) + "\n"


HEADER = """
import collections
import contextlib
import dataclasses
import functools
import facula

BASE = 3
log = []
calls = 0


def opaque(log, n, print=lambda *a: None):
    import sys
    sys.intern("a")
    log.append(("opaque", n))


def bump():
    global calls
    calls += 1


def numbers(n):
    for k in range(n):
        yield k


@contextlib.contextmanager
def managed(log):
    log.append("enter")
    try:
        yield log
    finally:
        log.append("exit")


def helper(t, *, k=1):
    return t + k


def averages(log):
    total, count = 0, 0
    try:
        while True:
            value = yield total / max(count, 1)
            total, count = total + value, count + 1
    except KeyError as e:
        log.append("thrown")
        yield e.args
    finally:
        log.append("ended")


def both(a, b):
    yield from (a, b)
    return None


def spread(*ts, k=1, **others):
    return ts[0] * k + ts[-1] + len(others)


def noted(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return f(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


@noted
def counted(t):
    return t + 1


class Vector:
    made = 0

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

    def __getitem__(self, k):
        return self.data[k]

    def __call__(self, t):
        return self.data * t

    def __getattr__(self, name):
        if name.startswith("scaled_"):
            return lambda t: t * int(name[7:])
        raise AttributeError(name)

    @property
    def twice(self):
        return self.data * 2


Point = collections.namedtuple("Point", "first second")


@dataclasses.dataclass(eq=False)
class Entry:
    tensor: object
    number: int = 1

    def __post_init__(self):
        self.twice = 2 * self.number


@dataclasses.dataclass(frozen=True, eq=False)
class Frozen:
    value: object
    count: int


class Cached:
    def __init__(self, tensor):
        self.tensor = tensor

    @functools.cached_property
    def total(self):
        log.append("computed")
        return self.tensor.sum()


class MetaType(type):
    def __call__(cls, name, tensor):
        o = super().__call__()
        o.name, o.tensor = name, tensor
        return o


class Meta(metaclass=MetaType):
    __slots__ = ("name", "tensor")


class State:
    "documented"

    shared = 0

    class Problem(Exception):
        pass

    @classmethod
    def made(cls, t):
        return t + cls.shared

    @staticmethod
    def fixed(t):
        return t - 1

    def __init__(self):
        self.count, self.items, self.table, self.flag, self.kept = 0, [1], {"a": 1}, None, []
        self.scale, self.seen, self.groups = 2, set(), collections.defaultdict(list)

    @property
    def double(self):
        return self.scale * 2

    @double.setter
    def double(self, value):
        self.scale = value

    def scaled(self, t):
        return t * self.double

    def __enter__(self):
        log.append("in")
        return self

    def __exit__(self, *error):
        log.append("out")
        return False


"""


class Close(float):
    """A number that is equal to those near it."""

    __hash__ = None

    def __eq__(self, other):
        return (
            abs(self - other) <= 1e-4 * max(1.0, abs(self))
            or (math.isnan(self) and math.isnan(other))
            or float.__eq__(self, other)
        )

    def __ne__(self, other):
        return not self == other


def plainly(x):
    """Objects without identity: tensors as nested lists."""
    if isinstance(x, facula.Tensor):
        return (
            "tensor",
            str(x.dtype),
            tuple(x.shape),
            x.requires_grad,
            [Close(v) for v in x.detach().double().reshape(-1).tolist()],
        )
    if isinstance(x, dict):
        return {k: plainly(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *(plainly(v) for v in x)]
    if type(x).__module__ == "random_module":
        return type(x).__name__, plainly(getattr(x, "__dict__", None))
    return x


def tensors_in(x):
    if isinstance(x, facula.Tensor):
        return [x]
    values = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return [t for v in values for t in tensors_in(v)]


def gradient_of(result, x):
    """The gradient of the results' sum in x, if they depend on it."""
    outputs = [t.sum() for t in tensors_in(result) if t.requires_grad]
    if not outputs:
        return None
    (gradient,) = facula.autograd.grad(sum(outputs), [x], allow_unused=True)
    return plainly(gradient)


class World:
    """One run of a module: its state after each call."""

    def __init__(self, source, file, compiled):
        self.space = {"__name__": "random_module"}
        exec(compile(source, file, "exec"), self.space)
        self.f, self.file = self.space["f"], file
        if compiled:
            self.f = facula.compile(self.f)
        self.state = self.space["State"]()

    def call(self, seed, n):
        r = random.Random(seed)
        rows = r.choice([2, 2, 3])
        facula.manual_seed(seed)
        x, y = facula.randn(rows, 2), facula.randn(rows, 2)
        if r.random() < 0.3:
            x.requires_grad_()
        if r.random() < 0.2:
            self.space["BASE"] = r.randint(1, 5)
        if r.random() < 0.2:
            self.state.scale = r.randint(1, 3)
        output, gradient = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(output):
                result = self.f(x, y, n, self.state)
            if x.requires_grad:
                gradient = gradient_of(result, x)
            result = plainly(result)
        except Exception as e:
            frames = [
                (t.name, t.lineno) for t in traceback.extract_tb(e.__traceback__) if t.filename == self.file
            ]
            result = type(e).__name__, str(e), frames
        state = {k: plainly(v) for k, v in vars(self.state).items()}
        shared = self.space["State"].shared, self.space["Vector"].made, self.space["counted"].calls
        generator = facula.default_generator.get_state().tolist()
        seen = [output.getvalue(), gradient, shared, generator, self.space["calls"]]
        return result, plainly(x), plainly(y), state, plainly(self.space["log"]), *seen


@pytest.mark.parametrize("k", range(PROGRAMS))
def test_random_programs_do_what_they_do_plainly(k):
    seed = int(os.environ.get("FACULA_COMPILE_SEED", random.randrange(1 << 30)))
    source = Writer(seed).module()
    file = f"<random {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    plain, compiled = World(source, file, False), World(source, file, True)
    for call, n in enumerate((1, 1, 2, 0, 1, 2)):
        want = plain.call(seed + call, n)
        got = compiled.call(seed + call, n)
        begin = HEADER.count("\n") - 1
        numbered = "\n".join(f"{i + 1:3} {t}" for i, t in enumerate(source.splitlines()) if i > begin)
        assert got == want, f"seed {seed}, call {call}\n{numbered}\n got {got}\nwant {want}"
