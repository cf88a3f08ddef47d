"""ModuleBase: calls and attributes on the fast path, and every way around it."""

import gc
import weakref

import pytest

from facula import _C

GROUPS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Module(_C.ModuleBase):
    def __init__(self):
        self.__dict__.update({g: {} for g in GROUPS})
        self._parameters["weight"] = 1

    def forward(self, x, k=2):
        return x, k

    def _call_impl(self, *args, **kwargs):
        return "hooked", self.forward(*args, **kwargs)


def test_a_call_is_forward():
    m = Module()
    assert m(1) == (1, 2) and m(1, 3) == (1, 3) and m(x=1, k=5) == (1, 5) and m(*range(2)) == (0, 1)
    assert list(map(m, [1, 2])) == [(1, 2), (2, 2)]
    with pytest.raises(TypeError):
        m()


def test_hooks_turn_to_call_impl():
    m = Module()
    m._forward_hooks[0] = print
    assert m(1) == ("hooked", (1, 2))
    del m._forward_hooks[0]
    assert m(1) == (1, 2)
    _C.set_global_hooks(True)
    try:
        assert m(1)[0] == "hooked"
    finally:
        _C.set_global_hooks(False)


def test_forward_replaced_on_the_instance():
    m = Module()
    m.forward = lambda x: ("own", x)
    assert m(1) == ("own", 1)


def test_call_overridden_and_patched():
    class Caller(Module):
        def __call__(self, x):
            return "mine", super().__call__(x)

    assert Caller()(1) == ("mine", (1, 2))
    m = Module()
    Module.__call__ = lambda self, *a: "patched"
    try:
        assert m(1) == "patched" and Caller()(1) == ("mine", "patched")
    finally:
        del Module.__call__
    assert m(1) == (1, 2)


def test_attributes_come_from_the_groups():
    m = Module()
    assert m.weight == 1 and hasattr(m, "weight") and not hasattr(m, "nothing")
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'nothing'"):
        m.nothing
    m.weight_too = 5
    assert m.weight_too == 5 and m.__dict__["weight_too"] == 5
    m._modules["child"] = Module()
    assert m.child.weight == 1


def test_getattr_of_a_subclass_is_asked():
    class Lazy(Module):
        def __getattr__(self, name):
            return "made" if name == "lazy" else super().__getattr__(name)

    class Below(Lazy):
        pass

    for cls in (Lazy, Below):
        assert cls().lazy == "made" and cls().weight == 1 and cls()(1) == (1, 2)


def test_getattr_of_a_subclass_is_asked_for_parameters_buffers_and_submodules():
    class Seen(Module):
        def __getattr__(self, name):
            return (name, super().__getattr__(name))

    class Below(Seen):
        pass

    for cls in (Seen, Below):
        m = cls()
        m._buffers["mean"], m._modules["child"] = 2, Module()
        assert m.weight == ("weight", 1) and m.mean == ("mean", 2) and m.child[0] == "child"
        m.plain = 3
        assert m.plain == 3 and cls()(1) == (1, 2)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            m.nothing


def test_getattribute_of_a_subclass_comes_before_getattr():
    asked = []

    class Watched(Module):
        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    m = Watched()
    asked.clear()
    assert m.weight == 1 and asked == ["weight"]
    with pytest.raises(AttributeError):
        object.__getattribute__(m, "weight")


def test_a_module_tells_its_signature():
    import inspect

    assert str(inspect.signature(Module())) == "(*args, **kwargs)"


def test_a_property_that_raises_shows_its_error():
    class Bad(Module):
        @property
        def value(self):
            raise AttributeError("from inside")

    with pytest.raises(AttributeError, match="from inside"):
        Bad().value


def test_modules_are_collected():
    m = Module()
    m._modules["self"] = m
    w = weakref.ref(m)
    del m
    gc.collect()
    assert w() is None


def test_an_exception_of_forward_passes():
    class Failing(Module):
        def forward(self, x):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        Failing()(1)
