"""Tensor as a Python object: identity, life time, subclasses, conversions, memory shared with others."""

import copy
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from support.dtypes import NUMPY_DTYPES

from facula import _C

F = _C.functions


def test_an_attribute_s_tensor_is_one_object():
    x = _C.tensor([1.0], requires_grad=True)
    x.grad = _C.tensor([2.0])
    assert x.grad is x.grad
    x.grad.note = "kept"
    gc.collect()
    assert x.grad.note == "kept"


def test_a_weak_reference_lives_as_long_as_the_tensor():
    x = _C.tensor([1.0], requires_grad=True)
    x.grad = _C.tensor([2.0])
    w = weakref.ref(x.grad)
    gc.collect()
    assert w() is x.grad
    del x
    assert w() is None


def test_a_subclass_survives_in_the_graph():
    class Named(_C.Tensor):
        pass

    x = Named(_C.tensor([1.0]))
    x.requires_grad_()
    x.label = "input"
    y = x * 2
    del x
    gc.collect()
    leaf = y.grad_fn.next_functions[0][0].variable
    assert type(leaf) is Named and leaf.label == "input"


def test_a_cycle_is_collected():
    x = _C.tensor([1.0])
    x.me = x
    w = weakref.ref(x)
    del x
    gc.collect()
    assert w() is None


def test_a_subclass_with_slots_and_a_finalizer():
    gone = []

    class Slotted(_C.Tensor):
        __slots__ = ("extra",)

        def __del__(self):
            gone.append(self.extra)

    s = Slotted(_C.tensor([1.0]))
    s.extra = [1]
    count = sys.getrefcount(s.extra)
    kept = s.extra
    del s
    assert gone == [[1]] and sys.getrefcount(kept) == count + 1  # ours and the one in `gone`


def test_objects_are_not_leaked():
    def work():
        t = _C.tensor([1.0, 2.0], requires_grad=True)
        (t * 2).sum().backward()
        t.grad, t[0], t.view(2, 1), t.numpy, F.add(t, 1)

    work()
    gc.collect()
    before, allocations = sys.getallocatedblocks(), _C.memory_stats()["current_bytes"]
    for _ in range(300):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 600 and _C.memory_stats()["current_bytes"] == allocations


def test_tensors_are_dropped_on_any_thread():
    shared = [_C.tensor([float(i)], requires_grad=True) for i in range(50)]
    errors = []

    def work():
        try:
            for _ in range(50):
                total = sum((t * 2 for t in shared[1:]), shared[0])
                _C.grad((total.sum(),), tuple(shared))
        except Exception as e:  # pragma: no cover
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_conversions_to_python():
    t = _C.tensor([[1, 2], [3, 4]])
    assert (
        t.tolist() == [[1, 2], [3, 4]] and t[1, 0].item() == 3 and int(t[0, 1]) == 2 and float(t[0, 1]) == 2.0
    )
    assert [10, 20, 30][t[0, 0]] == 20 and len(t) == 2 and [r.tolist() for r in t] == [[1, 2], [3, 4]]
    assert complex(_C.tensor(1 + 2j)) == 1 + 2j and f"{_C.tensor(1.5):.2f}" == "1.50" and bool(_C.tensor(1))
    assert 3 in t and 7 not in t
    for bad, kind in [
        (lambda: bool(t), RuntimeError),
        (lambda: t.item(), RuntimeError),
        (lambda: int(t), ValueError),
        (lambda: len(_C.tensor(1)), TypeError),
        (lambda: iter(_C.tensor(1)), TypeError),
    ]:
        with pytest.raises(kind):
            bad()


def test_hash_and_dict_use_identity():
    a, b = _C.tensor([1.0]), _C.tensor([1.0])
    assert len(dict([(a, 1), (b, 2), (a, 3)])) == 2


def test_repr_says_what_autograd_knows():
    x = _C.tensor([1.0], requires_grad=True)
    assert (
        repr(x) == "tensor([1.], requires_grad=True)"
        and repr(x * 2) == "tensor([2.], grad_fn=<MulBackward0>)"
    )


def test_deepcopy_keeps_class_attributes_and_sharing():
    class Named(_C.Tensor):
        pass

    x = Named(_C.tensor([1.0]))
    x.tags = ["a"]
    y, z = copy.deepcopy([x, x])
    assert (
        y is z
        and type(y) is Named
        and y.tags == ["a"]
        and y.tags is not x.tags
        and y.data_ptr() != x.data_ptr()
    )
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(_C.tensor([1.0], requires_grad=True) * 2)


def test_data_is_unknown_to_autograd():
    x = _C.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    x.data.mul_(2)
    y.sum().backward()  # the write went past the version counter
    assert x.tolist() == [2, 4]
    x.data = _C.tensor([5.0])
    assert x.shape == (1,) and x.requires_grad


def test_tensor_infers_like_pytorch():
    assert [_C.tensor(v).dtype for v in (True, 1, 1.0, 1j, [1, 2.0], [True, 1], [])] == [
        _C.bool,
        _C.int64,
        _C.float32,
        _C.complex64,
        _C.float32,
        _C.int64,
        _C.float32,
    ]
    assert _C.tensor([np.float64(1)]).dtype is _C.float64 and _C.tensor(np.int16(3)).dtype is _C.int16
    assert _C.tensor([[], []]).shape == (2, 0) and _C.tensor([_C.tensor(1), _C.tensor(2)]).tolist() == [1, 2]
    assert _C.tensor([1.7], dtype=_C.int64).tolist() == [1] and _C.tensor(range(3)).tolist() == [0, 1, 2]
    for bad, kind in [
        ([[1, 2], [3]], ValueError),
        ([1, [2]], TypeError),
        ([[1], 2], TypeError),
        ("a", TypeError),
        (None, RuntimeError),
        ({}, RuntimeError),
    ]:
        with pytest.raises(kind):
            _C.tensor(bad)
    with pytest.raises(RuntimeError, match="without overflow"):
        _C.tensor([300], dtype=_C.uint8)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_shares_memory_both_ways(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    t = _C.from_numpy(array)
    assert t.dtype is getattr(_C, dtype) and t.tolist() == array.tolist()
    array[0, 1] = 0
    assert t[0, 1].item() == 0
    back = t.numpy()
    assert back.dtype == array.dtype and back.__array_interface__["data"] == array.__array_interface__["data"]
    assert np.array_equal(np.asarray(t.transpose(0, 1)), array.T)
    del t, array
    gc.collect()
    assert back.shape == (2, 3)


def test_arrays_without_elements_have_an_address_for_every_numpy():
    for t in (F.zeros(0), F.zeros([2, 0], dtype=_C.int64), F.zeros(3)[:0]):
        array = t.numpy()
        assert array.shape == tuple(t.shape) and array.base.__array_interface__["data"][0]


def test_numpy_arrays_that_cannot_be_shared():
    for bad, kind, text in [
        (np.arange(3)[::-1], ValueError, "negative"),
        (np.array(["a"]), TypeError, "can't convert"),
        (np.arange(3).astype(">i4"), ValueError, "byte order"),
        ([1], TypeError, "expected np.ndarray"),
    ]:
        with pytest.raises(kind, match=text):
            _C.from_numpy(bad)
    with pytest.raises(TypeError, match="bfloat16"):
        F.zeros(2, dtype=_C.bfloat16).numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        _C.tensor([1.0], requires_grad=True).numpy()


def test_dlpack_both_ways():
    t = _C.tensor([[1.0, 2.0], [3.0, 4.0]])
    array = np.from_dlpack(t)
    array[0, 0] = 9
    assert t[0, 0].item() == 9 and t.__dlpack_device__() == (1, 0)
    assert _C.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert _C.from_dlpack(t).data_ptr() == t.data_ptr()
    old, new = t.__dlpack__(), t.__dlpack__(max_version=(1, 0))
    assert '"dltensor"' in repr(old) and '"dltensor_versioned"' in repr(new)
    u = _C.from_dlpack(new)
    del new, old, array
    gc.collect()
    assert u.tolist() == [[9, 2], [3, 4]]
    capsule = t.__dlpack__()
    _C.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="not used before"):
        _C.from_dlpack(capsule)


def test_frombuffer_reads_bytes():
    buffer = bytearray(np.arange(4, dtype=np.int32).tobytes())
    t = _C.frombuffer(buffer, dtype=_C.int32, count=2, offset=4)
    assert t.tolist() == [1, 2]
    t[0] = 7
    assert buffer[4] == 7
    with pytest.raises(ValueError):
        _C.frombuffer(buffer, dtype=_C.int32, offset=99)


def test_size_is_a_tuple_that_stays_itself():
    s = _C.tensor([[1.0, 2.0]]).shape
    assert s == (1, 2) and isinstance(s, tuple) and repr(s) == "facula.Size([1, 2])" and s.numel() == 2
    assert type(s[:1]) is type(s + (3,)) is type(s * 2) is _C.Size
    assert copy.copy(s) == s and hash(s) == hash((1, 2))


def test_dtypes_and_devices_are_values():
    assert repr(_C.float32) == "facula.float32" and copy.deepcopy(_C.bfloat16) is _C.bfloat16
    assert (
        _C.float16.is_floating_point
        and not _C.int8.is_floating_point
        and _C.complex64.is_complex
        and _C.float64.itemsize == 8
    )
    d = _C.device("cpu")
    assert (
        d == _C.tensor(1).device
        and str(d) == "cpu"
        and repr(d) == "device(type='cpu')"
        and {d: 1}[_C.device("cpu")] == 1
    )
    assert (F.zeros(1, dtype=float).dtype, F.zeros(1, dtype=int).dtype) == (_C.float64, _C.int64)
    with pytest.raises(RuntimeError):
        _C.device("nothing")


def test_generators_keep_their_state():
    g = _C.Generator().manual_seed(7)
    state = g.get_state()
    first = F.rand(4, generator=g).tolist()
    g.set_state(state)
    assert F.rand(4, generator=g).tolist() == first and g.initial_seed() == 7
    with pytest.raises(ValueError):
        g.manual_seed(2**70)


class Labelled:
    """A sequence by labels, as pandas' series are; arrays of other libraries are none of NumPy."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, label):
        raise KeyError(label)

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_what_makes_an_array_is_read_as_that_array():
    t = _C.tensor(Labelled([1.5, 2.5]))
    assert t.tolist() == [1.5, 2.5] and t.dtype == _C.float64
    assert _C.as_tensor(Labelled(np.arange(3, dtype=np.int16))).dtype == _C.int16
    assert _C.tensor(Labelled([1, 2]), dtype=_C.float32).tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="can't convert np.ndarray"):
        _C.tensor(Labelled(np.array(["a"], dtype=object)))
    with pytest.raises(ValueError, match="too many dimensions 'str'"):
        _C.tensor([["a"]])


def test_a_tensor_hashes_as_its_identity_and_has_no_power_by_a_modulus():
    x = _C.tensor([1, 2])
    assert hash(x) == id(x) and {x: 1}[x] == 1
    with pytest.raises(TypeError):
        pow(x, 2, 3)
