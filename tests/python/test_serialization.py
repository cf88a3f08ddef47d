"""Checkpoints: what is written is read, in PyTorch's format, safely."""

import collections
import copy
import fractions
import io
import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import facula as torch

nn = torch.nn
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
INSTALLED = Path(__file__).resolve().parents[2] / ".peer/bin/python"
PEER = os.environ.get("FACULA_PEER") or (str(INSTALLED) if INSTALLED.exists() else None)
needs_peer = pytest.mark.skipif(PEER is None, reason="PyTorch is not installed (make bench installs it)")


def same(a, b):
    if torch.is_tensor(a):
        assert (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.requires_grad == b.requires_grad
        )
        assert a.tolist() == b.tolist()
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for k in a:
            same(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert a == b and type(a) is type(b)


def round_trip(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout(dtype):
    base = (torch.arange(24) % 2 if dtype == torch.bool else torch.arange(24)).to(dtype).view(4, 6)
    for t in (
        base,
        base.t(),
        base[1:3, ::2],
        base[0, 0],
        base[:0],
        torch.empty(0, dtype=dtype),
        base[:1].expand(5, 6),
    ):
        same(t.detach(), round_trip(t.detach()))
        assert round_trip(t).stride() == t.stride()


def test_containers_numbers_and_parameters():
    ordered = collections.OrderedDict(b=torch.ones(2), a=[1, 2.5, None, True, "text", b"bytes", 1 + 2j])
    x = {
        "o": ordered,
        3: (torch.zeros(1), {"s": {1, 2}}),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "big": 2**80,
        "p": nn.Parameter(torch.ones(3)),
        "frozen": nn.Parameter(torch.ones(3), requires_grad=False),
        "rng": torch.get_rng_state(),
        "count": collections.Counter([1, 1, 2]),
        "device": torch.device("cpu"),
        "inf": float("inf"),
    }
    same(x, round_trip(x))


def test_state_dict_keeps_its_metadata():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    state = round_trip(model.state_dict())
    assert state._metadata == model.state_dict()._metadata
    other = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    other.load_state_dict(state)
    same(dict(model.state_dict()), dict(other.state_dict()))


def test_shared_storage_stays_shared():
    base = torch.arange(6.0)
    a, b, again = round_trip((base[:4], base[2:], base[2:]))
    a[2] = 100
    assert b[0].item() == 100 and again[0].item() == 100


def test_aliases_in_one_object():
    t = torch.ones(2)
    x = round_trip([t, t])
    assert x[0] is x[1]


def test_an_interrupted_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "c.pt"
    torch.save(torch.ones(2), path)

    class Bad:
        def __reduce__(self):
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        torch.save([torch.zeros(2), Bad()], path)
    assert torch.load(path).tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["c.pt"]


class Custom:
    pass


def test_other_objects_are_refused_by_name(tmp_path):
    path = tmp_path / "c.pt"
    torch.save({"x": Custom()}, path)
    with pytest.raises(
        pickle.UnpicklingError, match=r"holds a .*test_serialization\.Custom, which is neither tensor"
    ):
        torch.load(path)
    assert isinstance(torch.load(path, weights_only=False)["x"], Custom)


def test_a_file_that_would_run_code_does_not(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save(Evil(), tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        torch.load(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_damaged_files_give_one_clear_error(tmp_path):
    good = tmp_path / "good.pt"
    torch.save({"a": torch.arange(1000.0), "b": list(range(50))}, good)
    data = good.read_bytes()
    bad = tmp_path / "bad.pt"
    for cut in (0, 10, 200, len(data) // 2, len(data) - 5):
        bad.write_bytes(data[:cut])
        with pytest.raises(pickle.UnpicklingError, match=f"load: {bad} is damaged"):
            torch.load(bad)
    at = data.index(b"data/0") + 500
    bad.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
    with pytest.raises(pickle.UnpicklingError, match="damaged"):
        torch.load(bad)
    with zipfile.ZipFile(bad, "w") as z:
        z.writestr("x", "y")
    with pytest.raises(pickle.UnpicklingError, match="it has no data.pkl"):
        torch.load(bad)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none.pt")


def test_a_tensor_outside_of_its_storage_is_refused(tmp_path):
    path = tmp_path / "c.pt"
    torch.save(torch.arange(8.0), path)
    with zipfile.ZipFile(path) as z:
        records = {n: z.read(n) for n in z.namelist()}
    with zipfile.ZipFile(path, "w") as z:
        for n, d in records.items():
            # The size: a 1-tuple of the small integer 8, twice (storage and shape); the last is the shape's.
            z.writestr(
                n,
                d[: d.rindex(b"K\x08\x85")] + b"K\x50\x85" + d[d.rindex(b"K\x08\x85") + 3 :]
                if n.endswith("data.pkl")
                else d,
            )
    with pytest.raises(pickle.UnpicklingError, match="outside of its storage of 8 elements"):
        torch.load(path)


def test_pickle_and_deepcopy():
    p = nn.Parameter(torch.arange(3.0))
    p.note = "kept"
    q = copy.deepcopy(p)
    assert isinstance(q, nn.Parameter) and q.tolist() == [0, 1, 2] and q.data_ptr() != p.data_ptr()
    t = torch.arange(6.0).view(2, 3).t()
    same(t, pickle.loads(pickle.dumps(t)))
    r = pickle.loads(pickle.dumps(p))
    assert isinstance(r, nn.Parameter) and r.tolist() == p.tolist()
    shallow = copy.copy(t)
    shallow[0, 0] = 9
    assert t[0, 0].item() == 9
    for other in (torch.float16, torch.Size([2]), torch.device("cpu"), torch.Generator().manual_seed(3)):
        assert type(pickle.loads(pickle.dumps(other))) is type(other)
    assert pickle.loads(pickle.dumps(torch.float16)) is torch.float16
    model = pickle.loads(pickle.dumps(nn.Linear(2, 3)))
    assert model(torch.ones(1, 2)).shape == (1, 3)


CONTENT = """
import collections

def content(torch):
    f = torch.arange(12, dtype=torch.float32).view(3, 4) / 7
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(torch.arange(p.numel(), dtype=torch.float32).view(p.shape) + k)
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=0.25)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sgd.step()
    dtypes = [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int8, torch.int64, torch.uint8, torch.bool]
    return {
        "view": f.t()[1:],
        "all": [torch.arange(4).to(d) for d in dtypes],
        "model": model.state_dict(),
        "o": optimizer.state_dict(),
        "sgd": sgd.state_dict(),
        "p": torch.nn.Parameter(torch.ones(2)),
        "n": [1, 2.5, None, "s", (1,)],
        "size": f.shape,
        "t": torch.float16,
        "od": collections.OrderedDict(a=1),
    }

def facts(torch, x):
    if isinstance(x, torch.Tensor):
        kind = [type(x).__name__, str(x.dtype).split(".")[1], list(x.shape), x.requires_grad]
        exact = x.detach().float() if x.dtype == torch.bfloat16 else x.detach().to(torch.complex128)
        return [*kind, [str(v) for v in exact.reshape(-1).tolist()]]
    if isinstance(x, dict):
        return [[str(k), facts(torch, v)] for k, v in x.items()]
    if isinstance(x, (list, tuple)):
        return [facts(torch, v) for v in x]
    return str(x).split(".")[-1] if isinstance(x, torch.dtype) else repr(x)

def into_optimizer(torch, x):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    model.load_state_dict(x["model"])
    o = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[1].parameters()}])
    o.load_state_dict(x["o"])
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    o.step()
    s = torch.optim.SGD(model.parameters(), lr=9.0)
    s.load_state_dict(x["sgd"])
    s.step()
    return [[round(v, 4) for v in p.detach().reshape(-1).tolist()] for p in model.parameters()]
"""  # noqa: E501


def peer(script):
    return subprocess.run(
        [PEER, "-W", "ignore", "-c", CONTENT + script], capture_output=True, text=True, check=True
    ).stdout


@needs_peer
def test_pytorch_reads_our_files_and_goes_on_from_them(tmp_path):
    here = {}
    exec(CONTENT, here)
    mine = here["content"](torch)
    torch.save(mine, tmp_path / "ours.pt")
    printed = peer(
        f"import torch; x = torch.load({str(tmp_path / 'ours.pt')!r}); print(facts(torch, x)); "
        f"print(into_optimizer(torch, x))"
    )
    expected = [str(here["facts"](torch, mine)), str(here["into_optimizer"](torch, mine))]
    assert printed.replace("torch.", "facula.").splitlines() == expected


@needs_peer
def test_we_read_pytorchs_files_and_go_on_from_them(tmp_path):
    here = {}
    exec(CONTENT, here)
    path = str(tmp_path / "theirs.pt")
    printed = peer(
        f"import torch; x = content(torch); torch.save(x, {path!r}); print(facts(torch, x)); "
        f"print(into_optimizer(torch, x))"
    )
    loaded = torch.load(path)
    assert printed.replace("torch.", "facula.").splitlines() == [
        str(here["facts"](torch, loaded)),
        str(here["into_optimizer"](torch, loaded)),
    ]


def test_disk_space_is_that_of_the_elements(tmp_path):
    torch.save(torch.zeros(1000), tmp_path / "a.pt")
    assert 4000 <= (tmp_path / "a.pt").stat().st_size < 6000
    shutil.copy(tmp_path / "a.pt", tmp_path / "b.pt")
    assert torch.load(tmp_path / "b.pt").shape == (1000,)


def test_a_mapped_file_gives_tensors_whose_changes_stay_in_memory(tmp_path):
    path = str(tmp_path / "x.pt")
    torch.save({"a": torch.arange(5), "b": torch.ones(3)}, path)
    mapped = torch.load(path, mmap=True)
    assert mapped["a"].tolist() == [0, 1, 2, 3, 4]
    mapped["a"].zero_()
    os.unlink(path)
    assert mapped["b"].tolist() == [1, 1, 1] and mapped["a"].tolist() == [0] * 5
    with pytest.raises(ValueError, match="string filename"):
        torch.load(io.BytesIO(), mmap=True)


def test_a_plain_pickle_is_refused_with_a_way_out():
    with pytest.raises(pickle.UnpicklingError, match="plain pickle.*\n.*hint: read it with pickle.load"):
        torch.load(io.BytesIO(pickle.dumps({"a": 1})))


def test_files_of_old_stand_one_behind_the_other():
    file = io.BytesIO()
    for k in range(3):
        torch.save([torch.arange(k + 1), k], file, _use_new_zipfile_serialization=False)
    for trusted in (False, True):
        file.seek(0)
        read = [torch.load(file, weights_only=not trusted) for _ in range(3)]
        assert [(t.tolist(), k) for t, k in read] == [(list(range(k + 1)), k) for k in range(3)]


def old_file(obj):
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def test_damaged_files_of_old_give_one_clear_error():
    whole = old_file({"w": torch.arange(50.0), "n": [1, 2], "v": torch.ones(3)})
    rng = random.Random(0)
    damaged = [whole[:n] for n in range(len(whole))]
    for _ in range(3000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(data))
    refused = 0
    for data in damaged:
        try:
            torch.load(io.BytesIO(data))
        except (pickle.UnpicklingError, RuntimeError) as error:
            refused += 1
            assert str(error).startswith("load: "), error
    assert refused >= len(whole)


def test_a_file_of_old_that_claims_more_than_it_holds_takes_no_memory():
    whole = old_file(torch.zeros(5))
    reference = b"cpuq\x04K\x05"
    assert reference in whole
    for claimed in (2**31 - 1, 2**40):
        data = whole.replace(reference, reference[:-2] + pickle.dumps(claimed, 2)[2:-1])
        with pytest.raises(pickle.UnpicklingError, match="storage 0 claims .* elements in a file of"):
            torch.load(io.BytesIO(data))


def test_loading_needs_memory_for_the_elements_once(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.zeros(32 * 2**20), path)  # 128 MB
    program = (
        "import facula, resource, sys\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "facula.serialization, before = facula.serialization, peak()\n"
        "x = facula.load(sys.argv[1]); print(peak() - before)"
    )
    used = int(subprocess.check_output([sys.executable, "-c", program, str(path)]))
    assert used < 128 + 60


def test_safe_globals_count_within_their_block():
    file = io.BytesIO()
    torch.save(fractions.Fraction(1, 3), file)
    with torch.serialization.safe_globals([fractions.Fraction]):
        file.seek(0)
        assert torch.load(file) == fractions.Fraction(1, 3)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Fraction"):
        torch.load(file)


def test_what_pytorch_puts_off_is_done_when_a_tensor_is_rebuilt():
    from facula._utils import _rebuild_tensor_v2

    z = torch.tensor([1 + 2j, 3 - 1j])
    memory = z.storage()
    rebuilt = [
        _rebuild_tensor_v2(memory, 0, (2,), (1,), False, {}, {k: True}).tolist() for k in ("conj", "neg")
    ]
    assert rebuilt == [[1 - 2j, 3 + 1j], [-1 - 2j, -3 + 1j]]
    assert _rebuild_tensor_v2(memory, 0, (2,), (1,), False, {}, {}).tolist() == z.tolist()


def test_the_types_of_none_and_of_the_ellipsis_are_saved():
    file, types = io.BytesIO(), [type(None), type(...), type(NotImplemented), int]
    torch.save(types, file)
    file.seek(0)
    assert torch.load(file, weights_only=False) == types
