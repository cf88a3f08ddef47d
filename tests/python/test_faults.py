"""Damaged and hostile files, full disks, folders that cannot be written: one clear error, and nothing
half-done.
"""

import io
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections import OrderedDict
from contextlib import contextmanager

import pytest

import facula as F
from facula import safetensors


@contextmanager
def limited(bytes_more=1 << 29, seconds=5):
    """No more than so much memory, and no longer than so long."""
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    start = time.monotonic()
    resource.setrlimit(resource.RLIMIT_AS, (now + bytes_more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.monotonic() - start < seconds


@contextmanager
def largest_file(size):
    """Writing beyond `size` bytes fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def checkpoint(path, pickled, storages=(b"\0" * 16,), **extra):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a/data.pkl", pickled)
        z.writestr("a/byteorder", b"little")
        for k, s in enumerate(storages):
            z.writestr(f"a/data/{k}", s)
        for name, data in extra.items():
            z.writestr(name, data)


def read(path, **how):
    """Its error's text; None if it reads. Any other exception than load()'s own passes."""
    if isinstance(path, bytes):
        path = io.BytesIO(path)
    with limited(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            F.load(path, **how)
        except pickle.UnpicklingError as error:
            assert isinstance(error, RuntimeError)
            text = str(error)
            assert text.startswith("load: ") and len(text) < 2000
            return text
    return None


def small_checkpoint():
    file = io.BytesIO()
    F.save({"w": F.arange(4.0).view(2, 2).t(), "n": [1, 2.5, "text"]}, file)
    return file.getvalue()


def test_a_checkpoint_cut_anywhere_is_an_error(tmp_path):
    data, path = small_checkpoint(), tmp_path / "a.pt"
    for n in range(len(data)):
        assert read(data[:n]) is not None, n
    for n in range(0, len(data), 17):
        path.write_bytes(data[:n])
        assert read(path, mmap=True) is not None, n


def test_a_checkpoint_with_one_byte_changed_reads_the_same_or_is_an_error():
    data = small_checkpoint()
    good = F.load(io.BytesIO(data))
    for n in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[n] ^= flip
            if read(bytes(changed)) is None:
                x = F.load(io.BytesIO(changed))
                assert F.equal(x["w"], good["w"]) and x["n"] == good["n"], n


INT = struct.Struct("<i").pack
# A tensor's pickle: _rebuild_tensor_v2(storage, offset, size, stride, False, OrderedDict())
STORAGE = b"((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ%stQ"


def tensor_pickle(numel=4, offset=0, size=(4,), stride=(1,), storage=None):
    def whole(n):
        b = n.to_bytes(16, "little", signed=True)
        return b"\x8a\x10" + b

    def numbers(values):
        return b"(" + b"".join(map(whole, values)) + b"t"

    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n"
        + (storage or STORAGE % INT(numel))
        + whole(offset)
        + numbers(size)
        + numbers(stride)
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


def test_the_pickle_of_these_tests_is_a_tensors(tmp_path):
    checkpoint(tmp_path / "a.pt", tensor_pickle(), [struct.pack("<4f", 1, 2, 3, 4)])
    assert F.load(tmp_path / "a.pt").tolist() == [1, 2, 3, 4]
    checkpoint(
        tmp_path / "a.pt", tensor_pickle(size=(2**40,), stride=(0,))
    )  # an expanded one takes no memory
    with limited():
        assert F.load(tmp_path / "a.pt").shape == (2**40,)


GEOMETRIES = {
    "longer than its storage": dict(size=(5,)),
    "far beyond": dict(size=(2**40,)),
    "an offset beyond": dict(offset=1),
    "a negative offset": dict(offset=-1, size=(1,)),
    "an offset that overflows": dict(offset=2**63 - 1, size=(1,)),
    "an offset of 100 bits": dict(offset=2**100, size=(1,)),
    "a negative size": dict(size=(-4,)),
    "a negative stride": dict(size=(2,), stride=(-1,), offset=3),
    "a stride that overflows": dict(size=(3,), stride=(2**62,)),
    "sizes whose product overflows": dict(size=(2**31, 2**31, 4), stride=(0, 0, 1)),
    "more sizes than strides": dict(size=(2, 2), stride=(1,)),
    "a thousand dimensions": dict(size=(1,) * 1000, stride=(1,) * 1000),
    "an empty tensor with a size that overflows": dict(size=(0, 2**62, 2**62), stride=(1, 1, 1)),
    "more elements than the record": dict(numel=5),
    "a negative count of elements": dict(numel=-1),
    "no storage": dict(storage=b"(N"),
    "a number for a storage": dict(storage=b"(K\x01"),
}


@pytest.mark.parametrize("how", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_tensor_that_does_not_fit_its_storage_is_refused(tmp_path, how):
    checkpoint(tmp_path / "a.pt", tensor_pickle(**how))
    text = read(tmp_path / "a.pt")
    assert "outside of its storage" in text or "elements" in text or "bytes" in text


NESTED = b"\x80\x02)" + b"\x85" * 200_000
DOUBLED = b"\x80\x02)" + b"".join(b"q%ch%c\x86" % (k, k) for k in range(60))
PICKLES = {
    "nothing": b"",
    "no end": b"\x80\x02]",
    "an empty stack": b"\x80\x02.",
    "a newer protocol": b"\x80\x09N.",
    "an unknown instruction": b"\x80\x02\xff.",
    "a function to run": b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.",
    "a function by a path": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
    "a class of the old way": b"\x80\x02(ios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "attributes of a class": b"\x80\x02ctorch\nTensor\n(N}X\x08\0\0\0backwardK\x01stb.",
    "attributes of a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\0\0\0aK\x01sb.",
    "attributes of a kept class": b"\x80\x02ctorch\nTensor\nq\x000h\x00}X\x01\0\0\0aK\x01sb.",
    "a place for 2^31 values": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a place in text": b"\x80\x02]p99999999999\n.",
    "an array of 2^40 bytes": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
    "bytes of 2^40": b"\x80\x05\x8e" + (1 << 40).to_bytes(8, "little") + b".",
    "text of 2^63": b"\x80\x05\x8d" + (1 << 63).to_bytes(8, "little") + b".",
    "a frame of 2^60": b"\x80\x05\x95" + (1 << 60).to_bytes(8, "little") + b"N.",
    "an array of a size": b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\0\0\0\0\x40\x85R.",
    "deep tuples as a key": b"\x80\x02}" + NESTED[2:] + b"Ns.",
    "deep tuples": NESTED + b".",
    "a key that doubles": b"\x80\x02}" + DOUBLED[2:] + b"Ns.",
    "a set of what doubles": b"\x80\x02cbuiltins\nset\n]" + DOUBLED[2:] + b"a\x85R.",
    "a list that doubles for a storage": b"\x80\x02]"
    + b"".join(b"q%c(h%ch%cl" % (k, k, k) for k in range(60))
    + b"Q.",
    "no storage": b"\x80\x02K\x01Q.",
    "a storage without a key": b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nNX\x03\0\0\0cpuK\x04tQ.",
    "a storage that is not there": b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\n"
    b"X\x01\0\0\x009X\x03\0\0\0cpuK\x04tQ.",
    "a wrong operand": b"\x80\x02ctorch\ndevice\nX\x04\0\0\0moon\x85R.",
    "too few operands": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
    **{
        f"copies by {name}": b"\x80\x02c%s\nq\0(%st%sq\1" % (where, items, wrap)
        + b"h\0h\1R0" * 50_000
        + b"N."
        for name, where, items, wrap in [
            ("list", b"__builtin__\nlist", b"N" * 100_000, b"\x85"),
            ("set", b"builtins\nset", b"K\1" * 100_000, b"\x85"),
            ("frozenset", b"builtins\nfrozenset", b"K\1" * 100_000, b"\x85"),
            ("dict", b"builtins\ndict", b"K\1K\2\x86" * 100_000, b"\x85"),
            ("Size", b"torch\nSize", b"K\1" * 100_000, b"\x85"),
        ]
    },
    "copies by bytearray": b"\x80\x02cbuiltins\nbytearray\nq\0X\x40\x42\x0f\0%s\x85q\1" % (b"x" * 1_000_000)
    + b"h\0h\1R0" * 5000
    + b"N.",
    "hashes of a long number": b"\x80\x02}q\0\x8b\x40\x42\x0f\0%sq\1" % (b"x" * 1_000_000)
    + b"h\0h\1Ns" * 500_000
    + b".",
    "a list of a tensor's elements": b"\x80\x02cbuiltins\nlist\n"
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage"
    b"ctorch\nFloatStorage\nX\1\0\0\x000X\x03\0\0\0cpuK\x04tQK\0J\0\0\0\x7f\x85K\0\x85\x89}tR\x85R.",
    "items of a tensor": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage"
    b"ctorch\nFloatStorage\nX\1\0\0\x000X\x03\0\0\0cpuK\x04tQK\0K\4\x85K\1\x85\x89}tRK\0K\1s.",
    "a tensor of a wish": b"\x80\x02ctorch\nTensor\n\x8a\x06\0\0\0\0\0\x40\x85R.",
}


@pytest.mark.parametrize("data", PICKLES.values(), ids=PICKLES)
def test_a_hostile_pickle_is_an_error(tmp_path, data):
    before = dict(vars(F.Tensor))
    checkpoint(tmp_path / "a.pt", data)
    text = read(tmp_path / "a.pt")
    assert text is not None and ("damaged" in text or "holds a" in text or "refers to" in text)
    assert dict(vars(F.Tensor)) == before


@pytest.mark.parametrize("put_off", ["conj", "neg"])
def test_a_tensor_that_repeats_its_elements_stays_as_small_as_its_file(tmp_path, put_off):
    """4 elements seen as 2^40 by a stride of 0: what is put off happens to the 4."""
    dtype = {"conj": "ComplexFloat", "neg": "Float"}[put_off].encode()
    pickled = (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n%sStorage\n"
        b"X\1\0\0\x000X\x03\0\0\0cpuK\4tQK\0\x8a\x06\0\0\0\0\0\1K\4\x86K\0K\1\x86\x89}}X%s%s\x88stR."
        % (dtype, len(put_off).to_bytes(4, "little"), put_off.encode())
    )
    elements = F.arange(4).to(F.complex64 if put_off == "conj" else F.float32) + 1
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickled)
        archive.writestr(
            "a/data/0",
            bytes(
                memoryview(F.view_as_real(elements).numpy() if put_off == "conj" else elements.numpy()).cast(
                    "B"
                )
            ),
        )
    t = F.load(tmp_path / "a.pt")
    assert list(t.shape) == [2**40, 4] and t.untyped_storage().nbytes() == elements.untyped_storage().nbytes()
    assert t[12345].tolist() == (elements.conj() if put_off == "conj" else -elements).tolist()


def test_a_mapped_record_with_another_sum_is_refused(tmp_path):
    F.save({"w": F.ones(1000)}, tmp_path / "a.pt")
    data = bytearray((tmp_path / "a.pt").read_bytes())
    at = data.index(bytes(memoryview(F.ones(1000).numpy()).cast("B")))
    data[at + 2000] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    for mmap in (False, True):
        with pytest.raises(RuntimeError, match="damaged.*CRC"):
            F.load(tmp_path / "a.pt", mmap=mmap)


def test_lists_nested_deep_are_read():
    data = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    file = io.BytesIO()
    checkpoint(file, data)
    file.seek(0)
    x = F.load(file)
    assert isinstance(x, list) and len(x) == 1


def test_what_python_pickles_passes_the_check():
    t = (1, (2.5, "x"), frozenset({1, (2, 3)}))
    shared = [t] * 100
    values = [
        None, True, -(2**70), 1e300, "é" * 300, b"bytes" * 100, bytearray(b"a"), [], {}, (), set(range(300)),
        t, shared, {t: shared, "k": {1: [2, {3: 4}]}}, OrderedDict(a=1), list(range(70000)), 3 + 4j,
        slice(1, 2), {i: (i, str(i)) for i in range(70000)}, [bytes([i % 256]) * i for i in range(300)],
        (1, 2, 3, 4, 5),
    ]  # fmt: skip
    for protocol in range(6):
        for v in values:
            F._C.check_pickle(pickle.dumps(v, protocol), "here")


def test_records_that_are_compressed_doubled_or_overlap_are_refused(tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a/data.pkl", b"\x80\x02N." + b"\0" * (50 << 20))
    assert "compressed" in read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("a/data.pkl", tensor_pickle())
            z.writestr("a/data/0", b"\0" * 16)
            z.writestr("a/data/0", b"\1" * 16)
    assert "twice" in read(path)
    checkpoint(path, b"\x80\x02N.", [b"x" * 1000, b"y" * 1000])
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as z:
        entries = [i for i in z.infolist() if i.filename.startswith("a/data/")]
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"a/data/1"))
    struct.pack_into("<II", data, at + 20, 0xFFFFFFF0, 0xFFFFFFF0)  # 4 GiB, both sizes
    path.write_bytes(data)
    assert "claims 4294967280 bytes" in read(path)
    struct.pack_into("<II", data, at + 20, 1900, 1900)
    path.write_bytes(data)
    assert "overlap" in read(path)
    assert len(entries) == 2


def test_a_hostile_safetensors_header_is_an_error(tmp_path):
    path = tmp_path / "a.safetensors"
    good = safetensors.save({"a": F.ones(2), "b": F.zeros(3, dtype=F.int8)})
    for n in range(len(good)):
        with limited(), pytest.raises(safetensors.SafetensorError):
            safetensors.load(good[:n])
    for header in (
        b'{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [' + b"2," * 60 + b'2], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [1e1], "data_offsets": [0, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ):
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
        with limited(), pytest.raises(safetensors.SafetensorError):
            safetensors.load_file(path)


WRITERS = {
    "save": lambda path: F.save({"x": F.zeros(100_000)}, path),
    "safetensors": lambda path: safetensors.save_file({"x": F.zeros(100_000)}, path),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_the_old_file(tmp_path, write):
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    for size in (0, 10, 300, 4096, 300_000, 400_000):
        with (
            largest_file(size),
            pytest.raises(RuntimeError, match=f"cannot write {path}: .*stays as it was") as e,
        ):
            write(path)
        assert isinstance(e.value, OSError) and e.value.errno
        assert e.value.__context__ is None or e.value.__suppress_context__
        assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.pt"]


def test_threads_that_save_to_one_path_leave_the_file_of_one_of_them(tmp_path):
    path = tmp_path / "a.pt"
    values = [F.full((50_000,), float(k)) for k in range(4)]
    errors = []

    def work(value):
        try:
            for _ in range(10):
                F.save(value, path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(v,)) for v in values]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        if path.exists():
            found = F.load(path)
            assert any(F.equal(found, v) for v in values)
    for t in threads:
        t.join()
    assert not errors and os.listdir(tmp_path) == ["a.pt"]


def test_what_a_killed_process_left_beside_a_path_is_in_nobodys_way(tmp_path):
    path = tmp_path / "a.pt"
    number = next(F.serialization._numbers)
    for k in (number + 1, number + 2):
        (tmp_path / f".a.pt.{os.getpid()}-{k}.tmp").write_bytes(b"half")
    F.save(F.ones(3), path)
    assert F.equal(F.load(path), F.ones(3)) and len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_folder_that_is_not_there_is_named(tmp_path, write):
    with pytest.raises(RuntimeError, match="cannot write .*none/a.pt: No such file or directory"):
        write(tmp_path / "none" / "a.pt")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        write(tmp_path / "file" / "a.pt")


def test_a_file_object_that_fails_says_why():
    class Failing(io.BytesIO):
        def write(self, data):
            if self.tell() > 500:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with pytest.raises(OSError, match="No space left"):
        F.save({"x": F.zeros(1000)}, Failing())


FULL = """
import os, sys, facula as F
from facula import safetensors
folder, what = sys.argv[1:]
if what == "kernels":
    x = F.arange(6.0).reshape(2, 3)
    with open(folder + "/filler", "wb") as f:
        f.write(bytes(170_000))
    for name in "sin cos tan sinh cosh tanh exp expm1 log1p asinh atan erf digamma lgamma".split():
        assert getattr(F, name)(x).shape == (2, 3)  # a kernel each, more than there is room for
    names = os.listdir(folder + "/kernels")
    kernels = [n for n in names if n.endswith(".o")]
    assert 0 < len(kernels) < F._C.cache_stats()["compiled"], names
    assert all(n.endswith((".o", ".plan", ".sequence")) for n in names), names
else:
    write = F.save if what == "save" else safetensors.save_file
    path = folder + "/a.pt"
    write({"x": F.ones(10)}, path)
    try:
        write({"x": F.zeros(1_000_000)}, path)
    except RuntimeError as error:
        told = f"cannot write {path}: No space left on device; the file that is there stays"
        assert told in str(error), error
    read = F.load if what == "save" else safetensors.load_file
    assert set(os.listdir(folder)) - {"kernels"} == {"a.pt"} and read(path)["x"].tolist() == [1.0] * 10
"""


@pytest.mark.parametrize("what", ["save", "safetensors", "kernels"])
def test_a_disk_without_room_is_survived(tmp_path, what):
    def on_a_small_disk(*command, **how):
        mount = 'mount -t tmpfs -o size=200k none "$0" && exec "$@"'
        alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, tmp_path]
        return subprocess.run([*alone, *command], capture_output=True, text=True, **how)

    try:
        if on_a_small_disk("true").returncode:
            pytest.skip("may not mount a disk")
    except FileNotFoundError:
        pytest.skip("has no unshare")
    env = dict(os.environ, FACULA_CACHE_DIR=str(tmp_path / "kernels"), FACULA_SHIPPED_CACHE="/nowhere")
    done = on_a_small_disk(sys.executable, "-c", FULL, tmp_path, what, env=env)
    assert done.returncode == 0 and done.stderr == "", done.stderr


USES_KERNELS = """
import sys, facula as F
before = F._C.cache_stats()["compiled"]
x = F.arange(6.0).reshape(2, 3)
assert (x * 7.25 - x.tanh()).logsumexp(1).shape == (2,)
print(F._C.cache_stats()["compiled"] - before)
"""


def run_with_cache(folder, limit=None):
    def prepare():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    env = dict(os.environ, FACULA_CACHE_DIR=str(folder), FACULA_SHIPPED_CACHE="/nowhere")
    done = subprocess.run(
        [sys.executable, "-c", USES_KERNELS], env=env, capture_output=True, text=True, preexec_fn=prepare
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return int(done.stdout)


def test_kernels_work_whatever_the_cache_folder_is(tmp_path):
    good = tmp_path / "good"
    made = run_with_cache(good)
    assert made > 0 and run_with_cache(good) == 0
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert run_with_cache(file) == made  # no folder
    assert run_with_cache(file / "inside") == made
    assert run_with_cache("/proc/none") == made  # one that cannot be made
    full = tmp_path / "full"
    assert run_with_cache(full, limit=100) == made
    assert [f for f in full.iterdir()] == []  # nothing half-written
    kernels = sorted(good.glob("*.o"))
    for f, damage in zip(
        kernels * 4,
        (
            lambda d: d[:-1],
            lambda d: b"",
            lambda d: d[:40] + b"\xff" + d[41:],
            lambda d: d[:-9] + b"x" + d[-8:],
        ),
    ):
        f.write_bytes(damage(f.read_bytes()))
    assert 0 < run_with_cache(good) <= min(made, 4)
    assert run_with_cache(good) == 0  # made good
