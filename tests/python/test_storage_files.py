"""Storages over files and parts of storages: what PyTorch 2.13 answered for the same calls."""

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
