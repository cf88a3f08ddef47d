"""Data sets, samplers, collation and loading, in this process and by workers."""

import collections
import itertools
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from facula.utils import data
from facula.utils.data import dataloader

import facula as torch

N = 37


class Squares(data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, k):
        return {"x": torch.tensor([float(k), float(k * k)]), "k": k, "name": f"item {k}"}


class Failing(data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, k):
        if k == 20:
            raise KeyError("sample 20 is broken")
        return torch.tensor(k)


class Dying(Failing):
    def __getitem__(self, k):
        if k == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(k)


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, N, step))


class Seeds(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, k):
        info = data.get_worker_info()
        return torch.tensor(
            [info.id, info.seed % 1000, int(torch.initial_seed() == info.seed)]
        ), random.random()


def tensors():
    return data.TensorDataset(torch.arange(N * 6).view(N, 2, 3).float(), torch.arange(N))


class AsOther(data.Dataset):
    """The same samples through the general path."""

    def __init__(self, of):
        self.of = of

    def __len__(self):
        return len(self.of)

    def __getitem__(self, k):
        return self.of[k]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_whole_batches_equal_collated_samples(shuffle, drop_last):
    options = {"batch_size": 8, "shuffle": shuffle, "drop_last": drop_last}
    torch.manual_seed(3)
    fast = list(data.DataLoader(tensors(), **options))
    torch.manual_seed(3)
    slow = list(data.DataLoader(AsOther(tensors()), **options))
    assert len(fast) == len(slow) == len(data.DataLoader(tensors(), **options)) == (4 if drop_last else 5)
    for a, b in zip(fast, slow):
        assert type(a) is type(b) is list
        assert all(
            x.tolist() == y.tolist() and x.dtype == y.dtype and x.shape == y.shape for x, y in zip(a, b)
        )
    if not drop_last:
        assert sorted(k for _, y in fast for k in y.tolist()) == list(range(N))


def test_batches_do_not_alias_the_data():
    d = tensors()
    for x, _ in data.DataLoader(d, batch_size=8):
        x.zero_()
    assert d.tensors[0].sum().item() == sum(range(N * 6))


def test_an_epoch_is_reproducible_and_epochs_differ():
    torch.manual_seed(5)
    loader = data.DataLoader(tensors(), batch_size=N, shuffle=True)
    one, two = (next(iter(loader))[1].tolist() for _ in range(2))
    torch.manual_seed(5)
    again = next(iter(data.DataLoader(tensors(), batch_size=N, shuffle=True)))[1].tolist()
    assert one == again and one != two
    g = torch.Generator().manual_seed(1)
    a = [y.tolist() for _, y in data.DataLoader(tensors(), batch_size=5, shuffle=True, generator=g)]
    g.manual_seed(1)
    assert a == [y.tolist() for _, y in data.DataLoader(tensors(), batch_size=5, shuffle=True, generator=g)]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_give_the_same_batches_in_order(workers):
    torch.manual_seed(1)
    got = list(data.DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=workers))
    torch.manual_seed(1)
    expected = list(data.DataLoader(Squares(), batch_size=4, shuffle=True))
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert (
            a["x"].tolist() == b["x"].tolist()
            and a["k"].tolist() == b["k"].tolist()
            and a["name"] == b["name"]
        )
    got[0]["x"].mul_(2)  # memory of a batch is the caller's


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_keeps_its_type_and_traceback(workers):
    with pytest.raises(KeyError, match="sample 20 is broken") as caught:
        list(data.DataLoader(Failing(), batch_size=4, num_workers=workers))
    if workers:
        assert "DataLoader worker process" in str(caught.value) and "__getitem__" in str(caught.value)


def test_a_killed_worker_is_reported():
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code -9"):
        list(data.DataLoader(Dying(), batch_size=4, num_workers=2))


def test_workers_end_with_the_loop():
    loader = data.DataLoader(Squares(), batch_size=2, num_workers=2)
    others = {p for p in os.listdir("/proc") if p.isdigit() and _parent(p) == os.getpid()}
    it = iter(loader)
    next(it)
    children = {p for p in os.listdir("/proc") if p.isdigit() and _parent(p) == os.getpid()} - others
    assert children
    del it
    deadline = time.time() + 5
    while time.time() < deadline and any(_parent(p) == os.getpid() for p in children):
        time.sleep(0.05)
    assert not any(_parent(p) == os.getpid() for p in children)
    assert len(list(loader)) == 19  # and the loader works again


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_persistent_workers_serve_several_epochs():
    loader = data.DataLoader(Squares(), batch_size=8, num_workers=2, persistent_workers=True)
    epochs = [[b["k"].tolist() for b in loader] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    loader._pool.close()


def test_every_worker_has_its_own_seed():
    torch.manual_seed(0)
    batches = list(data.DataLoader(Seeds(), batch_size=2, num_workers=2))
    ids = {row[0] for b, _ in batches for row in b.tolist()}
    seeds = {row[1] for b, _ in batches for row in b.tolist()}
    assert ids == {0, 1} and len(seeds) == 2
    assert all(row[2] == 1 for b, _ in batches for row in b.tolist())
    assert len({v for _, r in batches for v in r.tolist()}) == 8


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers):
    loader = data.DataLoader(Stream(), batch_size=5, num_workers=workers)
    assert sorted(k for b in loader for k in b.tolist()) == list(range(N))
    if not workers:
        assert [len(b) for b in loader] == [5] * 7 + [2]
        assert list(data.DataLoader(Stream(), batch_size=None)) == list(range(N))


def test_samples_without_batches():
    assert [int(x) for x in data.DataLoader(Failing(), batch_size=None, sampler=[3, 1, 2])] == [3, 1, 2]


def test_samplers():
    assert list(data.SequentialSampler(range(4))) == [0, 1, 2, 3]
    torch.manual_seed(0)
    assert sorted(data.RandomSampler(range(9))) == list(range(9))
    assert len(list(data.RandomSampler(range(3), num_samples=8))) == 8
    assert set(data.RandomSampler(range(3), replacement=True, num_samples=50)) == {0, 1, 2}
    assert sorted(data.SubsetRandomSampler([4, 7, 9])) == [4, 7, 9]
    assert list(data.BatchSampler(range(7), 3, False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(data.BatchSampler(range(7), 3, True)) == [[0, 1, 2], [3, 4, 5]]
    counts = collections.Counter(data.WeightedRandomSampler([1, 0, 3], 8000))
    assert counts[1] == 0 and abs(counts[2] / 8000 - 0.75) < 0.03
    assert sorted(data.WeightedRandomSampler([1, 2, 0, 5], 3, replacement=False)) == [0, 1, 3]


def first(samples, count):
    return list(itertools.islice(samples, count))


def test_a_pass_over_more_samples_than_memory_holds_begins():
    many = data.RandomSampler(range(5), replacement=True, num_samples=10**10)
    assert set(first(many, 3000)) == set(range(5)) and len(many) == 10**10
    passes = first(data.RandomSampler(range(5), num_samples=10**10), 50)
    assert [sorted(passes[at : at + 5]) for at in range(0, 50, 5)] == [list(range(5))] * 10
    assert set(first(data.WeightedRandomSampler([1, 0, 1], 10**10), 3000)) == {0, 2}
    rows = data.TensorDataset(torch.arange(5))
    for sampler in (many, data.RandomSampler(rows, replacement=True, num_samples=10**10)):
        for batch, _ in zip(data.DataLoader(rows, 700, sampler=sampler), range(4)):
            assert batch[0].shape == (700,) and set(batch[0].tolist()) == set(range(5))


@pytest.mark.parametrize("count", [1, 1023, 1024, 1026, 5000])
@pytest.mark.parametrize("n", [3, 10**5, 2**40])
def test_samples_in_chunks_are_the_numbers_of_one_draw(count, n):
    seed = random.randrange(2**31)
    drawn, whole = (torch.Generator().manual_seed(seed) for _ in range(2))
    samples = data.RandomSampler(range(n), replacement=True, num_samples=count, generator=drawn)
    assert list(samples) == torch.randint(0, n, (count,), generator=whole).tolist(), seed
    assert torch.rand(1, generator=drawn) == torch.rand(1, generator=whole)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("size", [1, 7, 1000, 5000])
@pytest.mark.parametrize("options", [{}, {"num_samples": 100}, {"replacement": True, "num_samples": 2500}])
def test_batches_of_rows_have_the_samples_in_order(size, options, drop):
    rows = data.TensorDataset(torch.arange(N))
    pick = lambda: data.RandomSampler(rows, generator=torch.Generator().manual_seed(4), **options)  # noqa: E731
    batches = [batch[0].tolist() for batch in data.DataLoader(rows, size, sampler=pick(), drop_last=drop)]
    assert batches == list(data.BatchSampler(pick(), size, drop))


def test_datasets():
    d = tensors()
    both = d + data.TensorDataset(d.tensors[0] + 1000, d.tensors[1] + 1000)
    assert len(both) == 2 * N and both[N][1].item() == 1000 and both[-1][1].item() == 1000 + N - 1
    assert data.Subset(d, [5, 2])[1][1].item() == 2
    torch.manual_seed(0)
    parts = data.random_split(d, [30, 7])
    assert sorted(k for p in parts for k in p.indices) == list(range(N))
    assert [len(p) for p in data.random_split(d, [0.5, 0.3, 0.2])] == [19, 11, 7]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(d, [1, 2])
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(torch.ones(2), torch.ones(3))


def test_collation():
    Point = collections.namedtuple("Point", "x y")
    c = data.default_collate
    assert c([1, 2]).dtype == torch.int64 and c([1.0, 2.0]).dtype == torch.float64
    assert c(["a", "b"]) == ["a", "b"]
    assert c([np.float32(1), np.float32(2)]).dtype == torch.float32
    assert c([np.ones((2, 3), np.int16)] * 4).shape == (4, 2, 3)
    p = c([Point(1, torch.ones(2)), Point(2, torch.ones(2))])
    assert isinstance(p, Point) and p.x.tolist() == [1, 2] and p.y.shape == (2, 2)
    assert data.default_collate([("a", 1), ("b", 2)])[0] == (
        "a",
        "b",
    )
    assert [t.tolist() for t in c([(1, 2), (3, 4)])] == [[1, 3], [2, 4]]
    with pytest.raises(TypeError, match="found builtins.object"):
        c([object()])
    with pytest.raises(RuntimeError, match=r"equal size.*\[2\] at entry 0 and \[3\] at entry 1"):
        c([torch.ones(2), torch.ones(3)])
    with pytest.raises(RuntimeError, match="equal size"):
        c([[1, 2], [1]])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_workers": -1}, "non-negative"),
        ({"batch_size": 0}, "positive integer"),
        ({"shuffle": True, "sampler": [1]}, "mutually exclusive"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "mutually exclusive"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"persistent_workers": True}, "num_workers"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        data.DataLoader(tensors(), **options)


@pytest.mark.filterwarnings("error")  # nothing is left to fail when the half-made pool goes
def test_an_unknown_way_to_start_workers_is_refused():
    with pytest.raises(ValueError, match="but got 'nonsense'"):
        data.DataLoader(tensors(), num_workers=1, multiprocessing_context="nonsense")


def test_a_worker_that_takes_too_long_is_reported():
    class Slow(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, k):
            time.sleep(3)
            return k

    with pytest.raises(RuntimeError, match="timed out after 0.2"):
        next(iter(data.DataLoader(Slow(), num_workers=1, timeout=0.2)))


def test_control_c_ends_an_epoch_and_its_workers(tmp_path):
    program = tmp_path / "endless.py"
    program.write_text(
        "import time, facula\n"
        "from facula.utils.data import DataLoader, Dataset\n"
        "class Slow(Dataset):\n"
        "    def __len__(self): return 1000\n"
        "    def __getitem__(self, k):\n"
        "        time.sleep(0.05)\n"
        "        return facula.full((8,), k)\n"
        "if __name__ == '__main__':\n"
        "    loader = DataLoader(Slow(), batch_size=4, num_workers=2)\n"
        "    batches = iter(loader)\n"
        "    next(batches)\n"
        "    print(*(p.pid for p in __import__('multiprocessing').active_children()), flush=True)\n"
        "    for batch in batches: pass\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(torch.__file__))}
    process = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    workers = [int(pid) for pid in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert len(workers) == 2 and "KeyboardInterrupt" in errors and process.returncode != 0
    assert errors.count("Traceback") == 1  # the workers end silently
    for pid in workers:
        assert not os.path.exists(f"/proc/{pid}")


class Wide(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, k):
        return torch.full((1 << 18,), float(k))


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads the process's memory map")
def test_the_tensors_of_workers_lie_in_shared_memory():
    for batch in data.DataLoader(Wide(), batch_size=2, num_workers=1):
        at = batch.data_ptr()
        ranges = [line.split() for line in open("/proc/self/maps")]
        (place,) = [r for r in ranges if int(r[0].split("-")[0], 16) <= at < int(r[0].split("-")[1], 16)]
        assert "s" in place[1] and "memfd" in place[-2]


def test_shared_tensors_are_the_same_in_a_child():
    x = torch.zeros(3).share_memory_()
    pid = os.fork()
    if pid == 0:
        x[1] = 7
        os._exit(0)
    os.waitpid(pid, 0)
    assert x.tolist() == [0, 7, 0] and x.is_shared() and not torch.zeros(3).is_shared()


# ---- pipes


def test_branches_of_a_pipe_share_a_pass():
    from facula.utils.data.datapipes.iter import IterableWrapper

    one, two = IterableWrapper(range(4)).fork(2)
    assert list(zip(one, two)) == [(k, k) for k in range(4)] and len(one) == 4
    assert list(one) == list(range(4)) and list(two) == list(range(4)) and list(one) == list(range(4))
    small = IterableWrapper(range(9)).fork(2, buffer_size=3)
    with pytest.raises(BufferError, match="buffer size 3 is insufficient"):
        list(small[0])
    begun = iter(one)
    next(begun)
    assert list(one) == list(range(4))
    with pytest.raises(RuntimeError, match="another pass"):
        next(begun)
    rows = IterableWrapper([[1], [2]]).fork(2, copy="deep")
    assert next(iter(rows[0])) is not next(iter(rows[1]))
    evens, odds = IterableWrapper(range(6)).demux(2, lambda x: x % 2)
    assert list(evens) == [0, 2, 4] and list(odds) == [1, 3, 5]
    low, _ = IterableWrapper(range(4)).demux(2, lambda x: x if x < 2 else None, drop_none=True)
    assert list(low) == [0]
    with pytest.raises(ValueError, match="between 0 and 1. 2 is returned"):
        list(IterableWrapper([2]).demux(2, lambda x: x)[0])


def test_items_of_a_pipe_are_grouped():
    from facula.utils.data.datapipes.iter import IterableWrapper

    words = IterableWrapper("a1 b1 a2 c1 a3".split())
    assert list(words.groupby(lambda w: w[0])) == [["a1", "a2", "a3"], ["b1"], ["c1"]]
    pairs = words.groupby(lambda w: w[0], group_size=2, keep_key=True, drop_remaining=True)
    assert list(pairs) == [("a", ["a1", "a2"])]
    assert list(words.groupby(lambda w: w[0], buffer_size=3)) == [["a1", "a2"], ["b1"], ["c1"], ["a3"]]


def test_pipes_of_files_and_of_items_by_key(tmp_path):
    from facula.utils.data.datapipes.iter import IterableWrapper
    from facula.utils.data.datapipes.map import SequenceWrapper

    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "c.bin").write_bytes(b"")
    files = IterableWrapper([str(tmp_path)]).list_files("*.txt")
    assert [text for _, text in files.open_files(encoding="utf-8").read_from_stream()] == ["one", "two"]
    items = SequenceWrapper(range(5))
    assert items.batch(2)[2] == [4] and len(items.batch(2, drop_last=True)) == 2
    assert items.zip(SequenceWrapper("abc"))[1] == (1, "b") and items.concat(items)[6] == 1
    assert sorted(items.shuffle().set_seed(3)) == list(range(5)) == list(items.shuffle().set_shuffle(False))
    with pytest.raises(IndexError):
        items.concat(items)[10]


class Countdown:
    """What a loader of another library may have: only the attributes that PyTorch's iterators read."""

    num_workers, collate_fn, drop_last, generator, timeout = 0, staticmethod(lambda x: x), False, None, 0
    pin_memory = persistent_workers = _auto_collation = False
    multiprocessing_context, worker_init_fn, prefetch_factor = None, None, 2
    _dataset_kind, _index_sampler = dataloader._DatasetKind.Iterable, itertools.count()

    def __init__(self, workers):
        self.dataset, self.num_workers = self, workers

    def __iter__(self):
        return iter(range(3, 0, -1))


def test_iterators_take_an_object_with_the_attributes_of_a_loader():
    assert list(dataloader._SingleProcessDataLoaderIter(Countdown(0))) == [3, 2, 1]
    assert list(dataloader._MultiProcessingDataLoaderIter(Countdown(1))) == [3, 2, 1]


def test_a_loader_of_a_stream_has_the_samplers_of_pytorch():
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    batched, single = data.DataLoader(Stream(), batch_size=2), data.DataLoader(Stream(), batch_size=None)
    assert batched._dataset_kind == dataloader._DatasetKind.Iterable
    assert batched._auto_collation and not single._auto_collation
    assert next(iter(batched.batch_sampler)) == [None, None] and next(iter(single.sampler)) is None
    assert [b.tolist() for b in batched] == [[0, 1], [2, 3], [4]] and list(single) == [0, 1, 2, 3, 4]
