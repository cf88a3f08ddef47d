"""Storages over files and parts of storages: what PyTorch 2.13 answered for the same calls."""

import copy
import io
import mmap
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import facula

Untyped = facula.UntypedStorage


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(16)))
    return str(file)


def test_a_private_mapping_keeps_its_changes_from_the_file(path):
    s = Untyped.from_file(path, shared=False, nbytes=8)
    s[0] = 99
    assert s.tolist() == [99, 1, 2, 3, 4, 5, 6, 7] and s.filename is None
    assert Path(path).read_bytes() == bytes(range(16))


def test_a_shared_mapping_writes_to_the_file_and_makes_it_longer(path, tmp_path):
    s = Untyped.from_file(path, True, 20)
    s[0] = 99
    assert s.tolist() == [99, *range(1, 16), 0, 0, 0, 0] and s.filename == path and s.is_shared()
    assert Path(path).read_bytes() == bytes([99, *range(1, 16), 0, 0, 0, 0])
    made = facula.FloatStorage.from_file(str(tmp_path / "made"), True, 2)
    made[1] = 1.0
    assert (tmp_path / "made").read_bytes() == struct.pack("<2f", 0, 1)
    assert len(Untyped.from_file(path)) == 0


def test_files_that_cannot_be_mapped_are_refused(path, tmp_path):
    with pytest.raises(RuntimeError, match="size <16> is smaller than the required mapping size <17>"):
        Untyped.from_file(path, False, 17)
    with pytest.raises(RuntimeError, match="unable to open file .* in read-only mode: No such file"):
        Untyped.from_file(str(tmp_path / "none"), False, 1)
    with pytest.raises(RuntimeError, match="-1 bytes"):
        Untyped.from_file(path, False, -1)
    with pytest.raises(TypeError, match="str"):
        Untyped.from_file(Path(path), False, 1)
    with pytest.raises(RuntimeError, match="derived classes"):
        facula.TypedStorage.from_file(path, False, 1)


def test_a_slice_of_a_storage_is_a_storage_of_its_own_over_the_same_memory():
    x = facula.arange(4, dtype=facula.int16)
    s = x.untyped_storage()
    part = s[2:6]
    assert type(part) is Untyped and part.data_ptr() == s.data_ptr() + 2 and part.tolist() == [1, 0, 2, 0]
    part[0] = 9
    assert x.tolist() == [0, 9, 2, 3]
    assert len(s[-3:]) == 3 and len(s[5:100]) == 3 and len(s[3:1]) == 0
    y = facula.empty([], dtype=facula.int16).set_(source=part)
    assert y.tolist() == [9, 2] and y.untyped_storage().nbytes() == 4 and y.data_ptr() == part.data_ptr()
    del x, s, part
    assert y.tolist() == [9, 2]


def test_what_storages_do_not_take_as_an_index_is_said():
    s, typed = facula.zeros(2).untyped_storage(), facula.FloatStorage([1.0, 2.0])
    with pytest.raises(RuntimeError, match="step of 2, but only a step of 1"):
        s[::2]
    with pytest.raises(TypeError, match="can't index"):
        s["a"]
    with pytest.raises(IndexError):
        s[8]
    with pytest.raises(RuntimeError, match="slices are only supported in UntypedStorage"):
        typed[0:1]
    with pytest.raises(RuntimeError, match="can't index"):
        typed["a"]


@pytest.mark.parametrize("make", [facula.asarray, facula.as_tensor])
def test_tensors_over_a_storage_share_its_memory(make):
    memory = np.arange(6, dtype=np.float32)
    s = facula.from_numpy(memory).untyped_storage()
    x = make(s[4:16], dtype=facula.float32)
    assert x.tolist() == [1, 2, 3]
    x[0] = 7
    assert memory[1] == 7
    assert make(s[0:7], dtype=facula.uint8).shape == (7,)
    assert make(s[0:7], dtype=facula.float32).tolist() == [0]  # whole elements
    assert make(s).dtype == facula.int64
    typed = facula.FloatStorage([1.0, 2.0])
    make(typed)[0] = 5
    assert typed.tolist() == [5, 2]
    with pytest.raises(RuntimeError, match="float32"):
        make(typed, dtype=facula.int32)


def test_a_copy_of_a_storage_has_memory_of_its_own():
    s = facula.ones(2).untyped_storage()
    facula.asarray(s, dtype=facula.float32, copy=True).zero_()
    assert facula.asarray(s, dtype=facula.float32).tolist() == [1, 1]


def test_storages_of_meta_tensors_have_a_size_and_no_bytes():
    x = facula.empty(3, 2, device="meta")
    s = x[1:].untyped_storage()
    assert s.nbytes() == len(s) == 24 and s.data_ptr() == 0 and s.device.type == "meta"
    for read in (s.tolist, lambda: s[0:2], lambda: facula.save(s, "/dev/null")):
        with pytest.raises(NotImplementedError):
            read()


def thread_local_bytes(library):
    """Of an ELF library of 64 bits: the size in memory of its segment PT_TLS."""
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:5] != b"\x7fELF\x02":
            pytest.skip("not ELF of 64 bits")
        (start,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", data, start + size * k) for k in range(count)]
    return sum(h[6] for h in headers if h[0] == 7)


def test_memory_of_threads_leaves_room_for_other_libraries():
    """The loader keeps some 1600 bytes for libraries that are loaded later and whose variables of threads lie
    at fixed places; besides ours, OpenMP's of others (scikit-learn's) wants 128 of them."""
    package = Path(facula.__file__).parent
    libraries = [Path(facula._C.__file__), *package.glob("libfacula.so")]
    assert sum(map(thread_local_bytes, libraries)) <= 1120


def test_getsizeof_counts_the_bytes_of_a_storage():
    small, large = (sys.getsizeof(facula.zeros(n).untyped_storage()) for n in (0, 1000))
    assert large - small == 4000
    assert sys.getsizeof(facula.zeros(1000).storage()) > 4000


def released(*shape):
    x = facula.arange(float(np.prod(shape))).reshape(shape)
    x.untyped_storage().resize_(0)
    return x


def test_released_memory_comes_back_to_all_tensors_over_it():
    x = facula.arange(6.0).reshape(2, 3)
    y, handle, version = x.view(6)[2:], x.untyped_storage(), x._version
    before = facula.memory_stats()["current_bytes"]
    assert x.untyped_storage().resize_(0).nbytes() == 0
    assert facula.memory_stats()["current_bytes"] == before - 24
    assert x.data_ptr() == handle.data_ptr() == handle.nbytes() == len(x.storage()) == 0
    assert x.shape == (2, 3) and x.nbytes == 24 and x.is_contiguous() and x._version == version
    assert x.view(3, 2).detach().shape == (3, 2) and handle.tolist() == []
    handle.resize_(24)
    x.copy_(facula.ones(2, 3))
    assert y.tolist() == [1, 1, 1, 1] and y.data_ptr() == x.data_ptr() + 8


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x + 1,
        lambda x: x.sum(),
        lambda x: x @ facula.ones(3, 2),
        lambda x: facula.nn.functional.conv2d(x[None, None], facula.ones(1, 1, 1, 1)),
        lambda x: x.fill_(1),
        lambda x: x.copy_(facula.ones(2, 3)),
        lambda x: facula.add(1, facula.ones(2, 3), out=x),
        lambda x: x.clone(),
        lambda x: facula.cat([x, x]),
        lambda x: x.tolist(),
        lambda x: x[0, 0].item(),
        lambda x: x.numpy(),
        lambda x: facula.sort(x),
        lambda x: facula.linalg.svd(x),
        lambda x: x[facula.tensor([0])],
        lambda x: x[x > 0],
        lambda x: facula.as_strided(x, (2,), (1,)),
        lambda x: repr(x),
        lambda x: copy.deepcopy(x),
        lambda x: facula.save(x, io.BytesIO()),
        lambda x: x.share_memory_(),
        lambda x: x.__dlpack__(),
        lambda x: facula.compile(lambda x: x * 2 + 1)(x),
        lambda x: facula.vmap(facula.sin)(x),
    ],
)
def test_released_memory_is_not_read(read):
    """PyTorch raises for the product and for strides; for the others it reads at address 0."""
    with pytest.raises(RuntimeError, match="allocated|bounds|released"):
        read(released(2, 3))


def test_backward_reads_what_was_saved_once_its_memory_is_restored():
    """Programs that trade memory for time release activations and compute them again."""
    x = facula.arange(3.0, requires_grad=True)
    y = x * 2
    z, kept = (y * y).sum(), y.detach().clone()
    y.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="not allocated"):
        z.backward(retain_graph=True)
    y.untyped_storage().resize_(12)
    y.data.copy_(kept)
    x.grad = None
    z.backward()
    assert x.grad.tolist() == [0, 8, 16]


def test_a_storage_grows_in_place():
    x = facula.arange(4.0)
    y = x.view(2, 2)
    x.untyped_storage().resize_(40)
    assert y.tolist() == [[0, 1], [2, 3]] and y.untyped_storage().nbytes() == 40
    x.resize_(10).fill_(1)
    assert y.tolist() == [[1, 1], [1, 1]] and x.data_ptr() == y.data_ptr()
    typed = facula.FloatStorage([1.0, 2.0, 3.0])
    assert typed.resize_(5).size() == 5 and typed.nbytes() == 20 and [typed[k] for k in range(3)] == [1, 2, 3]
    assert typed.resize_(2).tolist() == [1, 2] and typed.resize_(0).tolist() == []
    empty = Untyped(0)
    assert empty.resize_(16).nbytes() == len(empty.fill_(3).tolist()) == 16
    x = facula.empty(0)
    x.resize_(3).fill_(2)
    assert x.tolist() == [2, 2, 2]


def test_a_storage_that_cannot_grow_keeps_its_elements():
    x = facula.arange(4.0)
    for resize in (lambda: x.resize_(1 << 50), lambda: x.untyped_storage().resize_(1 << 52)):
        with pytest.raises(RuntimeError, match="not enough memory"):
            resize()
        assert x.tolist() == [0, 1, 2, 3] and x.untyped_storage().nbytes() == 16


def test_a_released_storage_takes_the_size_that_a_tensor_needs():
    x = released(3)
    assert x.resize_(3).untyped_storage().nbytes() == 0
    assert x.resize_(2).fill_(7).tolist() == [7, 7] and x.untyped_storage().nbytes() == 8
    x = released(3)
    assert x.set_(facula.ones(4)).tolist() == [1, 1, 1, 1]


def test_weights_in_layouts_of_libraries_are_released_too():
    convolution = facula.nn.Conv2d(16, 32, 3, padding=1)
    x = facula.rand(2, 16, 12, 12)
    with facula.no_grad():
        before, kept = convolution(x), convolution.weight.clone()
        convolution.weight.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="not allocated"):
            convolution(x)
        convolution.weight.untyped_storage().resize_(4 * kept.numel())
        convolution.weight.copy_(kept)
        assert facula.equal(convolution(x), before)


def test_sizes_that_a_storage_does_not_take_are_refused():
    x = facula.ones(4)
    with pytest.raises(RuntimeError, match="cannot shrink a storage of 16 bytes to 8: 2 tensors use it"):
        x.untyped_storage().resize_(8)
    with pytest.raises(RuntimeError, match="not negative"):
        x.untyped_storage().resize_(-1)
    with pytest.raises(RuntimeError, match="expects an int, but got float"):
        x.untyped_storage().resize_(1.5)


def test_memory_that_others_use_does_not_move():
    x = facula.ones(4)
    assert x.untyped_storage().resizable()
    for lend in (facula.Tensor.numpy, facula.Tensor.__dlpack__):
        lent = lend(x)
        assert not x.untyped_storage().resizable()
        for resize in (lambda: x.untyped_storage().resize_(0), lambda: x.resize_(9)):
            with pytest.raises(RuntimeError, match="not resizable"):
                resize()
        del lent
        assert x.untyped_storage().resizable()
    for y in (facula.from_numpy(np.ones(4)), facula.frombuffer(bytearray(8), dtype=facula.int8)):
        with pytest.raises(RuntimeError, match="not resizable"):
            y.untyped_storage().resize_(0)


def test_storages_on_meta_have_the_size_that_they_are_given():
    x = facula.ones(3, device="meta")
    assert x.untyped_storage().resize_(0).nbytes() == 0 and (x + 1).shape == (3,)


BYTES = bytearray([0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x10, 0x40])


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("BoolStorage", {"byte_order": "big"}, [False] + 7 * [True]),
        ("BoolStorage", {"byte_order": "big", "offset": 3}, 5 * [True]),
        ("ShortStorage", {"byte_order": "big"}, [1, 515, 1029, 4160]),
        ("ShortStorage", {"byte_order": "little"}, [256, 770, 1284, 16400]),
        ("ShortStorage", {"byte_order": "little", "offset": 2, "count": 2}, [770, 1284]),
        ("ShortStorage", {"byte_order": "big", "offset": 8}, []),
        ("ByteStorage", {}, [0, 1, 2, 3, 4, 5, 16, 64]),
        ("FloatStorage", {"byte_order": "big"}, [9.25571648671185e-41, 1.564153649999926e-36]),
        ("ComplexFloatStorage", {"byte_order": "big"}, [9.25571648671185e-41 + 1.564153649999926e-36j]),
        ("TypedStorage", {"byte_order": "big", "count": 1}, [9.25571648671185e-41]),
        ("UntypedStorage", {"byte_order": "big", "dtype": facula.int16}, [1, 0, 3, 2, 5, 4, 64, 16]),
        ("UntypedStorage", {"byte_order": "little", "dtype": facula.int16}, [0, 1, 2, 3, 4, 5, 16, 64]),
        ("UntypedStorage", {"offset": 5}, [5, 16, 64]),
    ],
)
def test_a_storage_is_made_of_a_buffer(kind, options, expected):
    # The results are PyTorch's.
    storage = getattr(facula, kind).from_buffer(BYTES, **options)
    assert isinstance(storage, getattr(facula, kind)) and storage.tolist() == expected
    if kind == "ShortStorage" and expected:
        storage[0] = 7  # memory of its own
        assert BYTES[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "order of bytes"),
        ({"byte_order": "middle"}, "order of bytes"),
        ({"byte_order": "big", "offset": 3}, "multiple"),
        ({"byte_order": "big", "offset": -1}, "offset"),
        ({"byte_order": "big", "offset": 9}, "offset"),
        ({"byte_order": "big", "count": 5}, "hold 4 elements"),
    ],
)
def test_a_buffer_that_does_not_fit_a_storage_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        facula.ShortStorage.from_buffer(BYTES, **options)
