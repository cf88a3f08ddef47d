"""Random functions and classes, plain and compiled: equal results, side effects, exceptions and lines.

FACULA_COMPILE_PROGRAMS sets how many are drawn; a failure prints the seed and the source.
"""

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
        return self.pick(f"state.scaled({a})", f"helper({a}, k={self.number()})",
                         f"facula.where({a} > 0, {a}, x)",
                         f"(lambda t: t * {self.number()} + y)({a})")  # fmt: skip

    def number(self):
        return self.pick("2", "0.5", "n", "state.count", "len(state.items)", "(n + 1)", "BASE", "max(n, 2)")

    def condition(self):
        return self.pick("n > 1", "state.count % 2 == 0", "x.shape[0] > 2", "len(state.items) > 2",
                         "n in (0, 2)",
                         "'a' in state.table", "isinstance(state, State)", "state.flag is None",
                         "x.dtype == y.dtype",
                         "not state.items", "n and state.count")  # fmt: skip

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
            )  # fmt: skip
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
            )  # fmt: skip
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

    def break_(self, tensors):
        if self.r.random() < 0.5:
            return self.assign_(tensors)
        t = self.tensor(tensors)
        self.line(self.pick(f"log.append(int(({t}).sum() > 0.1))", f"opaque(log, {self.number()})",
                            f"state.count += int(({t}).sum() > 0)"))  # fmt: skip

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
import contextlib
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


class State:
    class Problem(Exception):
        pass

    def __init__(self):
        self.count, self.items, self.table, self.flag, self.kept = 0, [1], {"a": 1}, None, []
        self.scale = 2

    @property
    def double(self):
        return self.scale * 2

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
        return type(x)(plainly(v) for v in x)
    return x


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
        try:
            result = plainly(self.f(x, y, n, self.state))
        except Exception as e:
            frames = [
                (t.name, t.lineno) for t in traceback.extract_tb(e.__traceback__) if t.filename == self.file
            ]
            result = type(e).__name__, str(e), frames
        state = {k: plainly(v) for k, v in vars(self.state).items()}
        return result, plainly(x), plainly(y), state, plainly(self.space["log"]), self.space["calls"]


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
        numbered = "\n".join(f"{i + 1:3} {t}" for i, t in enumerate(source.splitlines()) if i > 60)
        assert got == want, f"seed {seed}, call {call}\n{numbered}\n got {got}\nwant {want}"
