"""An operator defined in one file is complete: the promise of docs/adding_an_operator.md, kept on
tests/cpp/added_operators.cpp.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import facula._C as C
import numpy as np
import pytest

import facula as F

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "cpp" / "added_operators.cpp"
PACKAGE = Path(C.__file__).parent


def generated_headers():
    """ops.h lies beside the package in a build folder."""
    if "FACULA_GENERATED" in os.environ:
        return Path(os.environ["FACULA_GENERATED"])
    return next(
        (p / "generated" for p in PACKAGE.parents if (p / "generated" / "facula" / "ops.h").exists()), None
    )


def compiled(source, library):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    headers = generated_headers()
    if not compiler or not headers:
        pytest.skip("needs a C++ compiler and the build folder of this package")
    folders = [f"-I{ROOT / 'src'}", f"-I{headers}", f"-L{PACKAGE}", f"-Wl,-rpath,{PACKAGE}"]
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC", *folders]
    subprocess.run([*compiler.split(), *flags, str(source), "-o", str(library), "-lfacula"], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session", autouse=True)
def added(tmp_path_factory):
    compiled(SOURCE, tmp_path_factory.mktemp("added") / "libadded.so").define_added_operators()


def smooth_step(x, edge=1.0):
    t = np.clip(x / edge, 0, 1)
    return t * t * (3 - 2 * t)


def test_it_is_a_function_a_method_and_in_place():
    x = F.linspace(-1, 2, 13)
    want = smooth_step(x.numpy())
    np.testing.assert_allclose(F.smooth_step(x).numpy(), want, atol=1e-6)
    np.testing.assert_allclose(x.smooth_step().numpy(), want, atol=1e-6)
    np.testing.assert_allclose(
        C.nn_functional.smooth_step(x, edge=0.5).numpy(), smooth_step(x.numpy(), 0.5), atol=1e-6
    )
    out = F.empty(0)
    assert F.smooth_step(x, out=out) is out
    y = x.clone()
    assert y.smooth_step_() is y
    np.testing.assert_array_equal(y.numpy(), out.numpy())


def test_its_kernel_takes_every_dtype_and_layout():
    x = F.linspace(-1, 2, 24, dtype=F.float64).reshape(4, 6)
    for dtype, error in ((F.float16, 2e-3), (F.bfloat16, 2e-2), (F.float32, 1e-6), (F.float64, 1e-14)):
        for y in (x.to(dtype), x.to(dtype).t(), x.to(dtype)[::2, 1::3], x.to(dtype)[0, 0], x.to(dtype)[:0]):
            got = y.smooth_step()
            assert got.dtype == dtype and got.shape == y.shape
            np.testing.assert_allclose(got.double().numpy(), smooth_step(y.double().numpy()), atol=error)
    with pytest.raises(NotImplementedError, match="smooth_step"):
        F.smooth_step(F.tensor([1]))


def test_its_gradient_follows_from_its_body():
    x = F.tensor([-0.5, 0.1, 0.7, 1.4], dtype=F.float64, requires_grad=True)
    assert F.autograd.gradcheck(F.smooth_step, (x,))
    assert F.autograd.gradgradcheck(F.smooth_step, (x,))


def test_a_loop_has_shape_rule_kernel_and_transposed_gradient():
    x = F.tensor(np.arange(10.0).reshape(2, 5), requires_grad=True)
    y = F.window_sum(x, 3)
    np.testing.assert_array_equal(
        y.detach().numpy(), np.lib.stride_tricks.sliding_window_view(x.detach().numpy(), 3, 1).sum(-1)
    )
    assert C.inspect_meta("window_sum", x, 3) == [((2, 3), F.float64)]
    y.sum().backward()
    assert x.grad.tolist() == [[1, 2, 3, 2, 1]] * 2
    assert F.autograd.gradgradcheck(lambda t: F.window_sum(t, 2, dim=0).exp(), (x,))
    with pytest.raises(RuntimeError, match=re.escape("window_sum: size must be between 1 and 5")):
        F.window_sum(x, 6)


def test_a_view_shares_memory_and_tracks_writes():
    x = F.zeros(5, 2)
    v = x.every_other()
    v.fill_(1)
    assert x[:, 0].tolist() == [1, 0, 1, 0, 1]
    assert v.data_ptr() == x.data_ptr() and v._version == x._version == 1
    t = F.ones(4, requires_grad=True)
    (t * 1).every_other().sum().backward()
    assert t.grad.tolist() == [1, 0, 1, 0]


def test_a_composite_is_fused_and_differentiable():
    x = F.randn(3, 4, dtype=F.float64, requires_grad=True)
    np.testing.assert_allclose(
        x.centre().detach().numpy(),
        x.detach().numpy() - x.detach().numpy().mean(-1, keepdims=True),
        atol=1e-15,
    )
    assert F.autograd.gradcheck(lambda t: t.centre(0), (x,))


@pytest.mark.parametrize("shape", [(2, 5), (3, 7), (4, 3), (6, 2, 8)])
def test_a_composites_sizes_may_be_computed(shape):
    x = F.randn(*shape, dtype=F.float64, requires_grad=True)
    assert F.autograd.gradcheck(F.step_energy, (x,))
    assert F.autograd.gradgradcheck(F.step_energy, (x,))


def test_it_is_documented_where_users_look():
    assert "3 t^2 - 2 t^3" in F.smooth_step.__doc__
    assert "smooth_step" in dir(F.Tensor)
    assert any(o["name"] == "window_sum" and o["kind"] == "loop" for o in C.operators())


def test_the_generator_writes_its_declaration_and_stub(tmp_path):
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    shutil.copy(SOURCE, catalog / "added.cpp")
    out = tmp_path / "out"
    subprocess.run(
        [
            sys.executable,
            str(ROOT / "src" / "facula" / "op" / "generate.py"),
            "--catalog",
            str(catalog),
            "--out",
            str(out),
        ],
        check=True,
    )
    text = {p.relative_to(out).as_posix(): p.read_text() for p in out.rglob("*") if p.is_file()}
    assert re.search(r"Tensor smooth_step\(const Tensor& self, .*edge", text["facula/ops.h"])
    stubs = "".join(t for name, t in text.items() if name.endswith(".pyi"))
    assert "def smooth_step(" in stubs and "def window_sum(" in stubs and "def smooth_step_(" in stubs
    assert "Sums of `size` neighbours along `dim`." in stubs and "def every_other(" in stubs


def test_its_samples_serve_the_generated_tests():
    import test_operators
    from support.operators import cases

    mine = [c for c in cases() if c.base in ("smooth_step", "window_sum", "every_other", "centre")]
    assert len(mine) == 4
    for case in mine:
        test_operators.BY_NAME[case.name] = case
        if case.kind != "view":
            test_operators.test_values_in_every_layout(case.name)
            test_operators.test_values_in_every_dtype(case.name)
        test_operators.test_gradient_agrees_with_finite_differences(case.name)


def test_a_faulty_definition_is_refused_and_leaves_no_trace(tmp_path):
    faulty = tmp_path / "faulty.cpp"
    faulty.write_text("""
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include <string>
using namespace facula; using namespace facula::op;
static std::string text;
extern "C" const char* define_faulty() {
  try {
    define_late([] { define("half_done(Tensor self) -> Tensor").doc("No body."); });
  } catch (const std::exception& e) { text = e.what(); }
  return text.c_str();
}
""")
    f = compiled(faulty, tmp_path / "libfaulty.so").define_faulty
    f.restype = ctypes.c_char_p
    assert b"half_done" in f()
    assert not hasattr(C.functions, "half_done")
