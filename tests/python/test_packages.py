"""Packages: programs that run by the C interface, without Python, LLVM or a compiler."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from facula._higher_order_ops import while_loop
from facula.export import Dim, export
from facula.export._package import _available
from facula.program import load, trace
from support import operators

import facula
from facula import nn

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from rows import CNN, GPT, MLP, PROLOGUE, RESNET18  # noqa: E402

HEADER = ROOT / "src/facula/deploy/facula_c.h"
FOLDER = Path(facula.__file__).parent
RUNTIME = FOLDER / "libfacula_runtime.so"
BESIDE = ("libfacula_numerics.so", "libfacula_sort.so", "libfacula_openblas.so", "libfacula_omp_wait.so")
needs_runtime = pytest.mark.skipif(not RUNTIME.exists(), reason="make runtime builds libfacula_runtime.so")


def net():
    facula.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3), nn.Softmax(-1))


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "model.fpk"
    program = export(net(), (facula.rand(4, 6),), dynamic_shapes=({0: Dim("batch", max=512)},))
    facula.package(program, path, sizes=[{"batch": 2}, {"batch": 8}])
    return path


@pytest.fixture(scope="session", params=[pytest.param(RUNTIME.name, marks=needs_runtime), "libfacula.so"])
def bare(request, tmp_path_factory):
    """A library that runs packages, in a folder without LLVM."""
    folder = tmp_path_factory.mktemp("bare")
    for name in (request.param, *BESIDE):
        if (FOLDER / name).exists():
            shutil.copy(FOLDER / name, folder)
    return folder / request.param


def run_alone(code, *args, library, cache):
    """Runs Python code that has NumPy, but not the package, in a process without caches of kernels."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "FACULA_CACHE_DIR": str(cache),
        "PYTHONPATH": str(Path(np.__file__).parents[1]),
    }
    command = [sys.executable, "-c", code, *map(str, args), str(library)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")


ALONE = """
import sys, importlib.util, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
program = packaged.load_package(sys.argv[2], sys.argv[3])
assert program.inputs == [("float32", (-1, 6))], program.inputs
x = numpy.load(sys.argv[2] + ".npy")
for n in (2, 4, 8):
    numpy.save(f"{sys.argv[2]}.{n}.npy", program(x[:n]))
assert "facula" not in sys.modules
print(open("/proc/self/maps").read().count("facula_llvm"))
"""


def test_a_package_runs_without_llvm_and_without_the_python_package(package, bare, tmp_path):
    x = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    np.save(f"{package}.npy", x)
    done = run_alone(
        ALONE, ROOT / "python/facula/packaged.py", package, library=bare, cache=tmp_path / "cache"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"
    for n in (2, 4, 8):
        expected = net()(facula.from_numpy(x[:n])).detach().numpy()
        np.testing.assert_allclose(np.load(f"{package}.{n}.npy"), expected, rtol=1e-6, atol=1e-7)


RUN_EACH = """
import sys, importlib.util, numpy, pathlib
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
for path in sorted(pathlib.Path(sys.argv[2]).glob("*.fpt")):
    given = numpy.load(f"{path}.npz")
    arrays = [given[f"arr_{k}"] for k in range(len(given.files))]
    try:
        results = packaged.load_package(path, sys.argv[3])(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        numpy.savez(f"{path}.results.npz", *results)
    except Exception as e:
        print(path.stem, str(e).replace("\\n", " "))
"""


def with_gradients(call, tensors):
    """The call and the gradients of its results, as a program, with arguments that require gradients."""
    leaves = [t.requires_grad_() if t.is_floating_point() else t for t in tensors]

    def f(*given):
        out = call(*given)
        out = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, facula.Tensor)]
        wanted = [t for t in given if t.requires_grad]
        total = sum((t * t).sum() for t in out if t.requires_grad and t.is_floating_point())
        grads = (
            facula.autograd.grad(total, wanted, allow_unused=True) if isinstance(total, facula.Tensor) else ()
        )
        return [t.detach().contiguous() for t in (*out, *grads) if t is not None]

    return trace(f, *leaves)


def write_programs(folder):
    """Saves a program for each operator, the arguments of a call, and its results in this process."""
    for case in operators.cases():
        if case.writes or not case.samples or case.random or case.base in operators.UNDEFINED:
            continue
        args = operators.arguments(case, 0, operators.usual_dtype(case))
        tensors = {k: v for k, v in args.items() if isinstance(v, facula.Tensor)}
        rest = {k: v for k, v in args.items() if k not in tensors}

        def call(*given, case=case, names=tuple(tensors), rest=rest):
            return getattr(facula._C.ops, case.base)(**dict(zip(names, given)), **rest)

        path = Path(folder) / f"{case.name}.fpt"
        given = [t.detach() for t in tensors.values()]
        try:
            with_gradients(call, tensors.values()).save(path)
            results = [t.contiguous() for t in load(path)(*given)]
        except (NotImplementedError, RuntimeError, ValueError):
            path.unlink(missing_ok=True)
            continue  # no program has this call
        np.savez(f"{path}.npz", *(t.numpy() for t in given))
        np.savez(f"{path}.expected.npz", *(t.resolve_conj().resolve_neg().numpy() for t in results))


@needs_runtime
def test_the_runtime_runs_every_operator_that_programs_call(tmp_path):
    """Two processes share a new folder of kernels: the second one, which cannot compile, needs them all."""
    cache = tmp_path / "cache"
    environment = {**os.environ, "FACULA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        f"import test_packages; test_packages.write_programs({str(tmp_path)!r})",
    ]
    subprocess.run(command, env=environment, check=True)
    programs = sorted(tmp_path.glob("*.fpt"))
    assert len(programs) > 400
    done = run_alone(RUN_EACH, ROOT / "python/facula/packaged.py", tmp_path, library=RUNTIME, cache=cache)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr
    for path in programs:
        results, expected = (np.load(f"{path}.{which}.npz") for which in ("results", "expected"))
        for name in expected.files:
            np.testing.assert_array_equal(results[name], expected[name], err_msg=path.stem)


@needs_runtime
@pytest.mark.skipif(facula.version.debug, reason="without optimization it is larger")
def test_the_runtime_library_is_small():
    assert RUNTIME.stat().st_size <= 6 * 2**20


def test_a_program_that_does_not_run_on_zeros_leaves_no_package(tmp_path):
    class Factor(nn.Module):
        def forward(self, x):
            return facula.linalg.cholesky(x)

    path = tmp_path / "m.fpk"
    with pytest.raises(
        RuntimeError, match=r"(?s)package: the program does not run on avx2:.*positive-definite"
    ):
        facula.package(export(Factor(), (facula.eye(3),)), path)
    assert not list(tmp_path.iterdir())


def test_a_package_has_kernels_for_each_instruction_set(package):
    names = zipfile.ZipFile(package).namelist()
    for target in {"avx2", "avx512"} & set(_available()):
        assert any(n.startswith(f"kernels/{target}/") for n in names)


@pytest.mark.skipif("amx" not in _available(), reason="this processor has no matrix unit for bfloat16")
@pytest.mark.parametrize("targets", [None, ("avx2", "avx512")])
def test_large_products_run_without_a_compiler_on_a_processor_with_amx(targets, bare, tmp_path):
    path, x = str(tmp_path / "m.fpk"), facula.randn(512, 512)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    program = export(model, (x,), dynamic_shapes=({0: Dim("batch")},))
    facula.package(program, path, targets=targets)
    names = {
        t: {n for n in zipfile.ZipFile(path).namelist() if f"kernels/{t}/" in n} for t in ("avx512", "amx")
    }
    assert bool(names["amx"]) == (targets is None)
    assert not {n.rpartition("/")[2] for n in names["avx512"]} & {n.rpartition("/")[2] for n in names["amx"]}
    for rows in (512, 3000) if targets is None else (512,):
        y = facula.randn(rows, 512)
        np.save(f"{path}.in.npy", y.numpy())
        packaged = ROOT / "python/facula/packaged.py"
        done = run_alone(ONE_CALL, packaged, path, f"{path}.in.npy", library=bare, cache=tmp_path / "numpy")
        assert done.returncode == 0, done.stderr
        result, expected = np.load(f"{path}.out.npy"), model(y).detach().numpy()
        if targets is None and not os.environ.get("FACULA_CPU_CAPABILITY"):
            np.testing.assert_array_equal(result, expected)  # both multiply by tiles
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


THREADS = """
import sys, os, ctypes, importlib.util, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
program = packaged.load_package(sys.argv[2], sys.argv[4])
ctypes.CDLL(sys.argv[4]).facula_set_threads(int(sys.argv[3]))
program(numpy.ones((512, 512), "float32"))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_calls_use_all_cores_if_the_number_of_threads_is_zero(bare, tmp_path):
    path = str(tmp_path / "m.fpk")
    facula.package(export(nn.Sequential(nn.Linear(512, 512), nn.GELU()), (facula.randn(512, 512),)), path)
    packaged = ROOT / "python/facula/packaged.py"
    counts = []
    for threads in (1, 2, 0):
        done = run_alone(THREADS, packaged, path, threads, library=bare, cache=tmp_path / "cache")
        assert done.returncode == 0, done.stderr
        counts.append(int(done.stdout))
    assert counts[0] < counts[1] <= counts[2]


class Branches(nn.Module):
    """Functions that a call with zeros does not reach."""

    def __init__(self):
        super().__init__()
        facula.manual_seed(1)
        self.a, self.b = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x):
        y = facula.cond(
            x.sum() > 0, lambda x: self.a(x).tanh().cumsum(0), lambda x: self.b(x).sigmoid().exp(), (x,)
        )
        return while_loop(
            lambda y: y.sum() < x.sum().cos() + 1, lambda y: ((y * y + 2).log() + y.sin(),), (y,)
        )[0]


REACH = """
import sys, importlib.util, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
program, x = packaged.load_package(sys.argv[2], sys.argv[3]), numpy.load(sys.argv[2] + ".npy")
numpy.savez(sys.argv[2] + ".npz", program(x), program(-x))
"""


def test_a_package_has_the_kernels_of_all_branches(bare, tmp_path):
    module, package = Branches(), tmp_path / "branches.fpk"
    facula.package(export(module, (facula.rand(4, 6),)), package)
    x = np.random.default_rng(0).random((4, 6)).astype("float32")
    np.save(f"{package}.npy", x)
    packaged, cache = ROOT / "python/facula/packaged.py", tmp_path / "cache"
    done = run_alone(REACH, packaged, package, library=bare, cache=cache)
    assert done.returncode == 0, done.stderr
    for given, result in zip((x, -x), np.load(f"{package}.npz").values(), strict=True):
        expected = module(facula.from_numpy(given)).detach().numpy()
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


# C, and C++ as well: reads an array, runs a package and writes its first result.
CALLER = """
#include <facula_c.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** arguments) {
  facula_program* program = count == 5 ? facula_load(arguments[1]) : NULL;
  facula_array x, y;
  if (!program || facula_input(program, 0, &x)) return fprintf(stderr, "%s\\n", facula_error()), 1;
  size_t bytes = x.dtype[0] == 'i' ? 8 : 4;
  x.sizes[0] = atoi(arguments[2]);
  for (int d = 0; d < x.rank; ++d) bytes *= (size_t)x.sizes[d];
  x.data = malloc(bytes);
  FILE *in = fopen(arguments[3], "rb"), *out = fopen(arguments[4], "wb");
  if (!in || !out || fread(x.data, 1, bytes, in) != bytes) return fprintf(stderr, "no input\\n"), 1;
  if (facula_run(program, &x, 1, &y)) return fprintf(stderr, "%s\\n", facula_error()), 1;
  bytes = 4;
  for (int d = 0; d < y.rank; ++d) bytes *= (size_t)y.sizes[d];
  fwrite(y.data, 1, bytes, out);
  fclose(in), fclose(out), free(x.data);
  facula_release(&y, 1);
  facula_free(program);
  return 0;
}
"""


def build_caller(tmp_path, language, library):
    source, program = tmp_path / f"caller.{language}", tmp_path / f"caller_{language}"
    source.write_text(CALLER)
    command = [{"c": "cc", "cpp": "c++"}[language], source, f"-I{HEADER.parent}", library, "-o", program]
    command += [f"-Wl,-rpath,{library.parent}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(command, check=True)
    return program


ONE_CALL = """
import sys, importlib.util, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
numpy.save(sys.argv[2] + ".out.npy", packaged.load_package(sys.argv[2], sys.argv[4])(numpy.load(sys.argv[3])))
"""


@pytest.mark.parametrize("name", ["MLP", "CNN", "ResNet-18", "GPT"])
def test_models_run_from_c_from_cpp_and_by_numpy_alone(name, bare, tmp_path):
    scope = {"torch": facula}
    exec(PROLOGUE + {"MLP": MLP, "CNN": CNN, "ResNet-18": RESNET18, "GPT": GPT}[name], scope)
    model, x = scope["model"].eval(), scope["images"][:4]
    path = str(tmp_path / "m.fpk")
    facula.package(export(model, (x,), dynamic_shapes=({0: Dim("batch")},)), path, sizes=[{"batch": 3}])
    given = x[:3].numpy()
    expected = model(x[:3]).detach().numpy()
    np.save(f"{path}.in.npy", given)
    given.tofile(f"{path}.in")
    for language in ("c", "cpp"):
        caller = build_caller(tmp_path, language, bare)
        environment = {"FACULA_CACHE_DIR": str(tmp_path / language)}
        command = [caller, path, "3", f"{path}.in", f"{path}.out"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        result = np.fromfile(f"{path}.out", "float32").reshape(expected.shape)
        assert abs(result - expected).max() <= 1e-5 * abs(expected).max()
    packaged = ROOT / "python/facula/packaged.py"
    done = run_alone(ONE_CALL, packaged, path, f"{path}.in.npy", library=bare, cache=tmp_path / "numpy")
    assert done.returncode == 0, done.stderr
    assert abs(np.load(f"{path}.out.npy") - expected).max() <= 1e-5 * abs(expected).max()


def test_the_server_example_answers_every_request(package, bare, tmp_path):
    program = tmp_path / "server"
    command = [
        "cc",
        ROOT / "examples/server/server.c",
        f"-I{HEADER.parent}",
        bare,
        "-lpthread",
    ]
    command += ["-o", program, f"-Wl,-rpath,{bare.parent}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(command, check=True)
    assert len((ROOT / "examples/server/server.c").read_text().splitlines()) <= 60
    environment = {"FACULA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([program, package, "3", "100"], capture_output=True, text=True, env=environment)
    assert done.stdout == "answered 100 requests\n", done.stderr


def test_the_c_interface_has_at_most_15_functions():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    functions = re.findall(r"\b(facula_\w+)\s*\(", text)
    assert len(functions) == len(set(functions)) <= 15
    for name in functions:
        assert hasattr(facula.packaged._library(), name)


def test_a_training_step_runs_by_numpy_as_in_python(tmp_path):
    def made():
        model = net()[:4]
        optimizer = facula.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, target):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    x, target = facula.rand(8, 6), facula.rand(8, 3)
    program = trace(made(), x, target)
    facula.package(program, tmp_path / "step.fpk")
    losses = [float(program(x, target)) for _ in range(10)]
    loaded = facula.load_package(tmp_path / "step.fpk")
    assert [loaded.train_step(x.numpy(), target.numpy()) for _ in range(10)] == losses
    loaded.save(tmp_path / "later.pt")
    later = facula.load_package(tmp_path / "later.pt")
    assert later.train_step(x.numpy(), target.numpy()) == float(program(x, target))


def test_faults_are_errors_with_a_text(package, tmp_path):
    with pytest.raises(RuntimeError, match="No such file|cannot"):
        facula.load_package(tmp_path / "none.fpk")
    loaded = facula.load_package(package)
    with pytest.raises(RuntimeError, match="float64|dtype"):
        loaded(np.zeros((2, 6)))
    with pytest.raises(RuntimeError):
        loaded(np.zeros((2, 5), "float32"))
    with pytest.raises(RuntimeError):
        loaded()
    with pytest.raises(ValueError, match="no Dim rows"):
        program = export(net(), (facula.rand(4, 6),), dynamic_shapes=({0: Dim("batch")},))
        facula.package(program, tmp_path / "x.fpk", sizes=[{"rows": 1}])


def test_packages_are_written_and_loaded_by_the_names_of_aotinductor(tmp_path):
    from facula._inductor import aoti_compile_and_package, aoti_load_package, config

    with config.patch(cpp_wrapper=True):
        program = export(net(), (facula.rand(4, 6),), dynamic_shapes=({0: Dim("batch", max=64)},))
        path = aoti_compile_and_package(program, package_path=tmp_path / "model.pt2")
    model = aoti_load_package(path)
    for n in (1, 4, 9):
        x = facula.rand(n, 6, requires_grad=True)
        y = model(x)
        assert not y.requires_grad and facula.allclose(y, net()(x), atol=1e-6)
    assert facula.allclose(model(input=x), y)
