"""Programs for PyTorch's C++ front end: found by find_package(Torch), built and run with Facula. They print
what they print when they are built with PyTorch, and their files are exchanged with Python.
"""

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import facula

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(facula._C.__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "cpp" / "torch"
GOLDEN = ROOT / "tests" / "golden"
pytestmark = pytest.mark.skipif(
    not (BUILD / "CMakeCache.txt").exists() or not shutil.which("cmake"),
    reason="needs the build folder and CMake",
)

# As PyTorch's tutorial says, for C++17: the target asks for what the headers need.
PROJECT = """
cmake_minimum_required(VERSION 3.5)
project({name})
set(CMAKE_CXX_STANDARD 17)
find_package(Torch REQUIRED)
set(CMAKE_CXX_FLAGS "${{CMAKE_CXX_FLAGS}} ${{TORCH_CXX_FLAGS}}")
add_executable({name} {source})
target_include_directories({name} PRIVATE ${{TORCH_INCLUDE_DIRS}})
target_link_libraries({name} "${{TORCH_LIBRARIES}}")
"""


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder, name):
    (folder / "CMakeLists.txt").write_text(PROJECT.format(name=name, source=SOURCES / f"{name}.cpp"))
    prefix = facula.utils.cmake_prefix_path
    run(
        "cmake",
        "-S",
        folder,
        "-B",
        folder / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Debug",
    )
    run("cmake", "--build", folder / "build")
    return folder / "build" / name


NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)")


def assert_same_text(given, expected, tolerance):
    """Equal but for numbers, which are near."""
    assert NUMBER.sub("#", given) == NUMBER.sub("#", expected), given
    for a, b in zip(NUMBER.findall(given), NUMBER.findall(expected), strict=True):
        assert math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance), (a, b, given)


def test_tensors_indices_and_gradients_print_what_pytorch_prints(tmp_path):
    assert_same_text(run(build(tmp_path, "tensors")), (GOLDEN / "cpp_torch_tensors.txt").read_text(), 1e-6)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    return folder, run(build(folder, "training"), folder)


def test_modules_optimizers_and_loaders_train_as_in_pytorch(trained):
    # Python's norms have a setting `bias`, which they print, and PyTorch's C++ has not.
    given = trained[1].replace("affine=true, bias=true", "affine=true")
    expected = (GOLDEN / "cpp_torch_training.txt").read_text()
    assert_same_text(given, expected, 2e-5)


def test_python_reads_the_archives_of_modules_and_tensors(trained):
    folder, _ = trained
    (tensor,) = facula.jit.load(folder / "tensor.pt").parameters()
    assert facula.equal(tensor, facula.arange(6.0).view(2, 3))
    block = facula.jit.load(str(folder / "block.pt"))
    names = [name for name, _ in block.named_parameters()]
    assert sorted(names) == ["conv.weight", "norm.bias", "norm.weight", "scale"]
    assert sorted(n for n, _ in block.named_buffers()) == [
        "count", "norm.num_batches_tracked", "norm.running_mean", "norm.running_var",
    ]  # fmt: skip
    expected = facula.sin(facula.arange(54.0, dtype=facula.float64)).mul(0.3).float().view(3, 2, 3, 3)
    assert facula.allclose(block.state_dict()["conv.weight"], expected, rtol=1e-6, atol=1e-7)
    with pytest.raises(NotImplementedError, match="block.pt.*TorchScript"):
        block(facula.ones(1))


def test_python_reads_the_state_of_an_optimizer(trained):
    folder, _ = trained
    state = facula.load(folder / "adam.pt")
    (group,) = state["param_groups"]
    assert group["lr"] == 1e-2 and len(group["params"]) == 4
    assert all(int(s["step"]) == 1 for s in state["state"].values())


def test_the_caching_allocator_for_phones_reduces_page_faults(tmp_path):
    without, with_allocator, same = map(int, run(build(tmp_path, "caching_allocator")).split())
    assert same
    assert with_allocator * 10 < without, (without, with_allocator)
