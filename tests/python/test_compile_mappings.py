"""Compiled functions read instances of subclasses of dict from outside, and notice when these change."""

import collections

import pytest

import facula


class Config(dict):
    """Items that are also attributes."""

    def __getattr__(self, name):
        return self[name]


class Ordered(collections.OrderedDict):
    def __getitem__(self, key):
        if isinstance(key, str):
            return {k: v for k, v in self.items()}[key]
        return tuple(super(Ordered, self).__getitem__(k) for k in self)[key]


def follows(f, steps, *args, captures=None):
    """Compares the compiled function with the function, before and after each of the steps."""
    run, x = facula.compile(f, fullgraph=True), facula.tensor([1.0, 2.0])
    for step in (lambda: None, lambda: None, *steps):
        step()
        want = f(x, *args)
        got = run(x, *args)
        assert facula.equal(got, want), (got, want)
    if captures is not None:
        assert run.report()["captures"] == captures


def test_attributes_that_are_items_are_read_as_items():
    c = Config(scale=2.0, shift=1.0)
    steps = [
        lambda: c.update(scale=3.0),
        lambda: c.__dict__.update(shift=5.0),
        lambda: c.pop("scale"),
        lambda: c,
    ]
    with pytest.raises(KeyError):
        follows(lambda x, c: x * c.scale + c.shift, steps, c)


def test_an_attribute_that_is_absent_is_no_missing_key():
    c = Config(scale=2.0)
    follows(lambda x, c: x * c.scale, [lambda: c.update(other=1)], c, captures=1)


@pytest.mark.parametrize("kind", [Config, type("Plain", (dict,), {}), Ordered])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, m: x * m["a"] + m["b"],
        lambda x, m: x * len(m) + ("c" in m),
        lambda x, m: sum((v * (k + 1) for k, v in enumerate(m.values())), x),
        lambda x, m: x * [k for k in m].index("b") + len([*m.items()]),
        lambda x, m: x * m.get("c", 5) + m.get("a"),
        lambda x, m: x + sum(v * (k == "a") for k, v in m.items()),
        lambda x, m: x + list(m).index("a"),
    ],
)
def test_items_length_and_order_are_noticed(kind, f):
    m = kind(a=1, b=2)
    steps = [lambda: m.update(a=7), lambda: m.update(c=3), lambda: m.update(a=m.pop("a"))]
    if kind is Ordered:
        steps.append(lambda: m.move_to_end("b"))
    follows(f, steps, m)


@pytest.mark.parametrize("kind", [Config, type("Plain", (dict,), {})])
def test_mappings_are_unpacked(kind):
    m = kind(a=1, b=2)

    def f(x, m):
        return x * (lambda a, b: a - b)(**m) + len({**m}) + dict(m)["a"]

    follows(f, [lambda: m.update(a=4), lambda: m.update(b=m.pop("b"))], m)


def test_methods_of_the_subclass_come_first():
    class Odd(dict):
        def __iter__(self):
            return iter(["z"])

        def keys(self):
            return ["z"]

        def __getitem__(self, key):
            return 10

        def __len__(self):
            return 77

        def __contains__(self, key):
            return False

    def f(x, m):
        return x + m["a"] + len(m) + len([k for k in m])

    m = Odd(a=1, b=2)
    follows(f, [lambda: setattr(Odd, "__len__", lambda self: 3), lambda: delattr(Odd, "__len__")], m)
    run = facula.compile(lambda x, m: x + len({**m}) + len(dict(m)))
    x = facula.ones(2)
    for _ in range(3):
        assert facula.equal(run(x, m), x + len({**m}) + len(dict(m)))


def test_a_missing_key_is_the_business_of_the_class():
    class Zero(dict):
        def __missing__(self, key):
            return 5

    m, x = Zero(a=1), facula.ones(2)
    run = facula.compile(lambda x, m: x * m["b"])
    assert facula.equal(run(x, m), x * 5) and facula.equal(run(x, m), x * 5)
    m["b"] = 2
    assert facula.equal(run(x, m), x * 2)
    plain = Config(a=1)
    with pytest.raises(KeyError):
        facula.compile(lambda x, m: x * m["b"])(x, plain)


def test_an_attribute_that_is_written_says_nothing_about_a_key():
    def f(x, c):
        c.scale = 9.0
        return x * c["scale"]

    c, x = Config(scale=2.0), facula.ones(2)
    run = facula.compile(f)
    assert facula.equal(run(x, c), x * 2) and facula.equal(run(x, c), x * 2)
    c["scale"] = 4.0
    assert facula.equal(run(x, c), x * 4)


class Output(collections.OrderedDict):
    """Keeps its items as attributes too, as results of models do."""

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)


def test_a_write_by_super_behind_a_break_is_repeated():
    def f(x):
        output = Output()
        output["a"] = x
        output.a = x + 1
        return output

    compiled = facula.compile(f)
    for k in range(4):
        x = facula.ones(2) * k
        got, want = compiled(x), f(x)
        assert type(got) is Output and list(got) == list(want)
        assert got["a"].tolist() == want["a"].tolist() == got.a.tolist() == want.a.tolist()


class Options:
    """Looks attributes up itself, as configurations of models do."""

    names = {"width": "size"}

    def __init__(self):
        self.size, self.flag = 3, False

    def __getattribute__(self, key):
        if key != "names" and key in super().__getattribute__("names"):
            key = super().__getattribute__("names")[key]
        return super().__getattribute__(key)

    @property
    def double(self):
        return self.width * 2

    def scaled(self, x):
        return x * self.width


def test_a_class_that_looks_attributes_up_itself():
    config = Options()

    def f(x):
        y = config.scaled(x) + config.width + config.double
        if config.flag:
            y = y * 2
        try:
            config.missing
        except AttributeError as e:
            y = y + len(str(e))
        return y

    compiled = facula.compile(f, fullgraph=True)
    changes = [None, None, ("flag", True), ("size", 5), None]
    for change in changes:
        if change:
            setattr(config, *change)
        assert compiled(facula.ones(2)).tolist() == f(facula.ones(2)).tolist()
    Options.names = {"width": "flag"}
    try:
        assert compiled(facula.ones(2)).tolist() == f(facula.ones(2)).tolist()
    finally:
        Options.names = {"width": "size"}
