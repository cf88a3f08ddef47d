"""Tensors on other devices than the CPU: `meta`, which has no memory, and one from outside of the tree."""

import copy
import importlib
import pickle
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import facula._C as C
import pytest
from support.operators import UNDEFINED, arguments, bits, call, cases, tensors, usual_dtype

import facula as F
from facula import nn

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(C.__file__).resolve().parents[2]
ALL = cases()
BY_NAME = {c.name: c for c in ALL}


def moved(x, device):
    if isinstance(x, F.Tensor):
        return x.to(device)
    if isinstance(x, list):
        return [moved(y, device) for y in x]
    return {k: moved(y, device) for k, y in x.items()} if isinstance(x, dict) else x


def facts(t):
    return None if t is None else (tuple(t.shape), t.stride(), t.dtype)


# What looks at elements, which PyTorch refuses on meta too, or answers by what it guesses they are.
READS = re.compile("Cannot copy out of meta|item\\(\\) cannot be called on meta|meta have none|has no data")


@pytest.mark.parametrize(
    "name", [c.name for c in ALL if c.samples and not c.writes and c.name != "_to_device"]
)
def test_meta_results_have_the_shapes_strides_and_dtypes_of_the_cpus(name):
    case = BY_NAME[name]
    for number in range(len(case.samples)):
        args = arguments(case, number, usual_dtype(case))
        if not tensors(args):
            continue
        what = f"{name}, sample {number}"
        wanted = tensors(call(case, args))
        try:
            got = tensors(call(case, moved(args, "meta")))
        except (RuntimeError, NotImplementedError) as e:
            assert READS.search(str(e)), f"{what}: {e}"
            continue
        assert [facts(t) for t in got] == [facts(t) for t in wanted], what
        assert all(t.is_meta for t in got), what


def test_a_module_on_meta_takes_no_memory_until_it_is_given_some():
    before = C.memory_stats()["current_bytes"] if hasattr(C, "memory_stats") else None
    with F.device("meta"):
        net = nn.Sequential(nn.Linear(200_000, 100_000), nn.BatchNorm1d(100_000), nn.Embedding(10**9, 64))
    assert {t.device.type for t in net.state_dict().values()} == {"meta"}
    if before is not None:
        assert C.memory_stats()["current_bytes"] - before < 10**6
    assert F.ones(1).device.type == "cpu"


def small(device="cpu"):
    with F.device(device):
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 2))


def test_deferred_initialisation():
    made, loaded, source = small("meta"), small("meta"), small()
    made.to_empty(device="cpu")
    F.manual_seed(3)
    for m in made:
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
    F.manual_seed(3)
    assert all(F.equal(a, b) for a, b in zip(made.parameters(), small().parameters(), strict=True))
    with pytest.warns(UserWarning, match="0.weight: copying from a non-meta parameter .* is a no-op"):
        loaded.load_state_dict(source.state_dict())
    assert all(p.is_meta for p in loaded.parameters())
    loaded.load_state_dict(source.state_dict(), assign=True)
    x = F.randn(3, 4)
    assert F.equal(loaded.eval()(x), source.eval()(x))


def test_steps_on_meta_give_gradients_and_states_there():
    net = small("meta")
    optimizer = F.optim.AdamW(net.parameters())
    net(F.empty(3, 4, device="meta")).sum().backward()
    optimizer.step()
    for p in net.parameters():
        assert p.grad.is_meta and p.grad.shape == p.shape
        assert optimizer.state[p]["exp_avg"].is_meta


def test_random_numbers_on_meta_take_none_of_the_cpus():
    F.manual_seed(5)
    wanted = F.randn(3)
    F.manual_seed(5)
    with F.device("meta"):
        F.randn(100), F.randperm(7), nn.Linear(3, 3)
    assert F.equal(F.randn(3), wanted)


def test_default_devices_nest_and_belong_to_their_thread():
    there = []
    with F.device("meta"):
        assert F.get_default_device() == F.device("meta") and F.tensor([1.0]).is_meta
        assert F.from_numpy(F.ones(2, device="cpu").numpy()).device.type == "cpu"
        with F.device("cpu"):
            assert F.arange(3).device.type == "cpu"
        thread = threading.Thread(target=lambda: there.append(F.ones(1).device.type))
        thread.start()
        thread.join()
        assert F.zeros_like(F.ones(2, device="cpu")).device.type == "cpu"  # where its model is
        assert (F.ones(2, device="cpu") + 1).device.type == "cpu"
        with pytest.raises(ZeroDivisionError), F.device("cpu"):
            1 // 0
        assert F.eye(2).is_meta
    assert there == ["cpu"]
    F.set_default_device("meta")
    assert F.full((2,), 1).is_meta
    F.set_default_device(None)
    assert F.get_default_device() == F.device("cpu")


def test_what_meta_cannot_do_says_so():
    x = F.ones(2, 3, device="meta", requires_grad=True)
    assert repr(F.ones(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    for call_, error, text in [
        (lambda: x.sum().item(), RuntimeError, "item\\(\\) cannot be called on meta tensors"),
        (lambda: bool(x.sum() > 0), RuntimeError, "meta"),
        (lambda: x.cpu(), NotImplementedError, "Cannot copy out of meta tensor; no data!"),
        (lambda: F.zeros(2, 3).copy_(x.detach()), NotImplementedError, "Cannot copy out of meta tensor"),
        (lambda: x.detach().numpy(), TypeError, "can't convert meta device type tensor to numpy"),
        (lambda: x.nonzero(), NotImplementedError, "nonzero.* depends on the elements"),
        (
            lambda: x + F.ones(3),
            RuntimeError,
            "add: Expected all tensors to be on the same device, .* meta and cpu",
        ),
        (
            lambda: F.cat([F.ones(1), x.flatten()]),
            RuntimeError,
            "cat: Expected all tensors to be on the same device",
        ),
        (lambda: x.detach().add_(F.ones(3)), RuntimeError, "Expected all tensors to be on the same device"),
        (
            lambda: F.ones(3).add_(x.detach()[0]),
            RuntimeError,
            "Expected all tensors to be on the same device",
        ),
        (lambda: F.ones(2, device="nothing"), RuntimeError, "invalid device string: 'nothing'"),
        (lambda: F.ones(2, device="cuda"), AssertionError, "not compiled with CUDA"),
    ]:
        with pytest.raises(error, match=text):
            call_()
    assert (x + F.tensor(2.0)).is_meta and (x * 2).is_meta  # numbers join any device


def test_a_leaf_whose_data_become_another_tensors_gets_gradients_of_that_kind():
    net = nn.Linear(4, 2)
    net(F.ones(3, 4)).sum().backward()
    net.zero_grad()
    net.double()
    net(F.ones(3, 4, dtype=F.float64)).sum().backward()
    assert net.weight.grad.dtype == F.float64
    net.to("meta")
    net(F.ones(3, 4, dtype=F.float64, device="meta")).sum().backward()
    assert net.weight.grad.is_meta


def test_where_tensors_are_made_is_pytorchs():
    """What PyTorch answers for each, tried beside it."""
    meta, on_cpu = F.ones(2, 3, device="meta"), F.ones(3)
    for made in (
        meta.new_zeros(2),
        meta.new_tensor([1, 2]),
        on_cpu.new_ones(2, device="meta"),
        F.randn_like(on_cpu, device="meta"),
        F.as_tensor(on_cpu, device="meta"),
        F.bernoulli(meta),
        F.ones(1, device="meta:0"),
        meta[[0, 1]],
        meta[F.tensor([0, 1])],
        on_cpu.to(meta),
        pickle.loads(pickle.dumps(meta)),
        copy.deepcopy(meta),
        nn.utils.skip_init(nn.Linear, 2, 3, device="meta").weight,
    ):
        assert made.device == F.device("meta")
    for made in (
        meta.new_zeros(2, device="cpu"),
        F.empty_like(meta, device="cpu"),
        F.full_like(meta, 3, device="cpu"),
    ):
        assert made.device == F.device("cpu")
    assert F.full_like(meta, 3, device="cpu").tolist() == [[3.0] * 3] * 2
    with F.device("meta"):
        for made in (
            F.tensor(on_cpu),
            F.as_tensor(on_cpu),
            F.nn.functional.one_hot(F.zeros(3, dtype=F.int64), 4),
        ):
            assert made.is_meta
        for made in (on_cpu.new_zeros(2), F.Tensor([1.0]), F.FloatTensor(2), F.zeros_like(on_cpu)):
            assert made.device == F.device("cpu")
    assert meta.data_ptr() == 0
    assert meta.to(F.float64).dtype == F.float64 and meta.to("meta") is meta


# ---- a device from outside


def compiled(folder):
    """The example device, built as a user builds it, in a package that declares its entry point."""

    def run(*command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
    shutil.copytree(ROOT / "examples/device", folder / "device")
    run("cmake", "-S", folder / "device", "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}")
    run("cmake", "--build", folder / "build")
    about = folder / "device/facula_toy-0.1.0.dist-info"  # what installing writes
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: facula-toy\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[facula.backends]\ntoy = facula_toy:load\n")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The name of the example device, which naming it has loaded."""
    if not (BUILD / "CMakeCache.txt").exists() or not shutil.which("cmake"):
        pytest.skip("needs the build folder and CMake")
    folder = tmp_path_factory.mktemp("toy")
    compiled(folder)
    sys.path.insert(0, str(folder / "device"))
    importlib.invalidate_caches()
    yield str(F.device("toy"))
    sys.path.remove(str(folder / "device"))


def same(got, wanted, what, strides=True):
    assert len(got) == len(wanted), what
    for g, w in zip(got, wanted, strict=True):
        if g is None or w is None:
            assert g is w, what
            continue
        assert g.shape == w.shape and g.dtype == w.dtype and (not strides or g.stride() == w.stride()), what
        if bits(g.cpu()) != bits(w):
            largest = max(w.abs().nan_to_num(0, 0, 0).max().item(), 1)
            assert F.allclose(g.cpu(), w, rtol=1e-4, atol=1e-5 * largest, equal_nan=True), what


def test_operators_give_on_a_device_what_they_give_on_the_cpu(toy):
    """Bit by bit but for sums that the device's own matrix unit orders otherwise; forward and backward."""
    forward = backward = 0
    for case in ALL:
        if not case.samples or case.random or case.base in UNDEFINED:
            continue
        if case.name in ("_to_device", "_of_length"):  # which on a CPU is one element, as a vector
            continue
        for number in range(len(case.samples)):
            what = f"{case.name}, sample {number}"
            here = arguments(case, number, usual_dtype(case))
            if not tensors(here):
                continue
            there = moved(here, toy)
            assert all(t.device.type == "toy" for t in tensors(there)), what
            wanted, got = call(case, here), call(case, there)
            if case.writes:
                wanted, got = wanted + tensors(here), got + tensors(there)
            same(tensors(got), tensors(wanted), what)
            if "space" not in case.name:  # linspace(tensor, tensor) takes numbers, as in PyTorch
                assert all(t.device.type == "toy" for t in tensors(got)), what
            forward += number == 0
            backward += number == 0 and gradients_agree(case, number, toy)
    assert forward > 700 and backward > 300, (forward, backward)


def gradients_agree(case, number, toy):
    if not case.differentiable or case.writes or "float32" not in case.dtypes:
        return False
    found = []
    for device in ("cpu", toy):
        args = moved(arguments(case, number, "float32"), device)
        leaves = [t for t in tensors(args) if t.is_floating_point()]
        for t in leaves:
            t.requires_grad_()
        results = [r for r in tensors(call(case, args)) if r is not None and r.requires_grad]
        if not results:
            return False
        sums = [(r * r).sum().real for r in results]
        try:
            found.append(F.autograd.grad(sums, leaves, allow_unused=True))
        except (NotImplementedError, RuntimeError) as e:
            assert "not implemented" in str(e) or "no second derivative" in str(e), f"{case.name}: {e}"
            return False
    same(found[1], found[0], f"gradient of {case.name}", strides=False)
    return True


def test_a_program_trains_on_a_device_as_on_the_cpu(toy):
    """The MLP example's network and step: the matrix unit sums in another order, nothing else differs."""
    losses = []
    for device in ("cpu", toy):
        F.manual_seed(0)
        net = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
        optimizer = F.optim.AdamW(net.parameters(), lr=1e-2)
        x, y = F.randn(32, 20), F.randint(4, (32,))
        for _ in range(10):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        assert next(net.parameters()).grad.device.type == device.split(":")[0]
    assert losses[0] < 1.2 and abs(losses[0] - losses[1]) < 1e-5


def test_moves_are_recorded_and_written_back(toy):
    x = F.arange(6.0).reshape(2, 3).requires_grad_()
    y = (x.to(toy) * 2).cpu()
    y.sum().backward()
    assert F.equal(x.grad, F.full((2, 3), 2.0)) and x.grad.device.type == "cpu"
    t = F.arange(6.0, device=toy).reshape(2, 3)
    t.t()[1].mul_(10)
    t[0, 0] = 7
    t.copy_(t + F.ones(2, 3, device=toy))
    assert t.tolist() == [[8.0, 11.0, 3.0], [4.0, 41.0, 6.0]]
    assert repr(t[0]) == "tensor([ 8., 11.,  3.], device='toy:0')"
    out = F.empty(0, device=toy)
    F.add(t, 1, out=out)
    assert out.tolist() == (t.cpu() + 1).tolist() and out.device == t.device
    with pytest.raises(RuntimeError, match="the CPU does not address the memory of device 'toy:0'"):
        t.data_ptr()
    with pytest.raises(TypeError, match="can't convert toy:0 device type tensor to numpy"):
        t.numpy()


def test_methods_are_named_after_the_device(toy):
    x = F.ones(2).toy()
    assert x.is_toy and not F.ones(2).is_toy and x.device == F.device("toy:0")
    assert next(nn.Linear(2, 2).toy().parameters()).is_toy
    with pytest.raises(RuntimeError, match="expected a toy device"):
        F.ones(2).toy("meta")
