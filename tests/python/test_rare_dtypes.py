"""uint16, uint32, uint64, float8 and complex32: what PyTorch answers to the same calls
(tests/golden/rare_dtypes.jsonl.gz, by tests/golden/record_rare_dtypes.py), and ways in and out.
"""

import base64
import copy
import io
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import facula.safetensors
import numpy as np
import pytest
from support import recording
from support.rare_dtypes import FLOAT8, LIMITED, UNSIGNED, calls, digests, evaluate, sample

import facula as F

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = dict(json.loads(line) for line in recording.read("rare_dtypes.jsonl").splitlines())

# Where Facula answers otherwise, as regular expressions of the call, and why.
DIFFERENT = {
    r"^T\.ones\(2, dtype=T\.float8\w+\) \* [\d.]+$": "PyTorch does not take numbers",
    r"\.isinf\(\)$": "every float8 is asked, also those without infinities",
    r"\.(uniform|random)_\(\)\.dtype$": "numbers are drawn for all dtypes that hold them",
    r"float8_e8m0fnu\)\.abs\(\)": "the other float8 have absolute values too",
    r"^T\.equal\(.*complex32": "as of all other dtypes",
    r"^T\.iinfo\(T\.uint\d+\)$": "integers are shown with all digits",
    r"fnuz\)\.to\(T\.(int32|int64|uint32|uint64)\)$": "NaN becomes what it does elsewhere",
}


def agree(call, got, want):
    named = (got, want) == ("!NotImplementedError", "!RuntimeError")  # which is a RuntimeError too
    return got == want or named or any(re.search(p, call) for p in DIFFERENT)


@pytest.mark.parametrize("dtype", [*LIMITED, "others"])
def test_calls_answer_as_pytorch(dtype):
    def group(call):
        return next((d for d in LIMITED if call.find(f"T.{d})") >= 0 or call.find(f"T.{d},") >= 0), "others")

    chosen = [c for c in calls() if group(c) == dtype]
    assert chosen
    wrong = [
        f"{call}\n    {got}\n    {RECORDED[call]} in PyTorch"
        for call in chosen
        if not agree(call, got := evaluate(F, call), RECORDED[call])
    ]
    assert not wrong, f"{len(wrong)} of {len(chosen)}\n" + "\n".join(wrong)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_all_codes_of_float8_and_all_shorter_floats_convert_as_in_pytorch(dtype):
    assert digests(F, dtype) == RECORDED[f"digests {dtype}"]


def test_kernels_printed_as_c_convert_alike(tmp_path):
    """The text that C99 and CUDA C share, on fewer numbers than above."""
    code = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import facula as F
from support.rare_dtypes import LIMITED, digest, sample
x = F.from_numpy(sample()[::7].copy())
for d in LIMITED:
    y = x.to(getattr(F, d))
    z = F.view_as_real(y.cfloat()) if y.is_complex() else y.double()
    print(d, digest(z.numpy()), (y == y[5]).sum().item())
"""
    answers = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "FACULA_TARGET": target, "FACULA_CACHE_DIR": str(tmp_path / target)},
            capture_output=True, text=True, check=True,
        ).stdout
        for target in ("llvm", "c99")
    ]  # fmt: skip
    assert answers[0] == answers[1] and answers[0].count("\n") == len(LIMITED)


@pytest.mark.parametrize("dtype", LIMITED)
def test_kernels_convert_as_the_interpreter_does(dtype):
    d = getattr(F, dtype)
    x = F.from_numpy(sample()[::101].copy())
    interpret = F._C.inspect_interpret
    stored = x.to(d)
    assert_same(stored, interpret("to_dtype", x, d)[0])
    for other in (
        "float32",
        "int64",
        "uint64",
        "uint32",
        "float8_e5m2",
        "complex32",
        "complex64",
        "bfloat16",
        "bool",
    ):
        assert_same(stored.to(getattr(F, other)), interpret("to_dtype", stored, getattr(F, other))[0])
    assert_same(stored == stored[0], interpret("eq", stored, stored[0])[0])
    assert_same(stored * stored, interpret("mul", stored, stored)[0])


def bits(t):
    """The memory of a tensor; NaNs of 16 bits and more all alike."""
    t = F.view_as_real(t) if t.is_complex() else t
    return (
        t.nan_to_num(123.0, 321.0, -321.0)
        if t.is_floating_point() and t.element_size() > 1
        else t.contiguous().view(F.uint8)
    )


def assert_same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert bits(a).tolist() == bits(b).tolist()


@pytest.mark.parametrize("dtype", LIMITED)
@pytest.mark.parametrize("shape", ["", "0", "1", "1000", "37x53"])
def test_every_layout_converts_as_the_contiguous_one(dtype, shape):
    d = getattr(F, dtype)
    sizes = [int(n) for n in shape.split("x") if n]
    x = F.from_numpy(sample()[: max(1, int(np.prod(sizes)))].copy())[: int(np.prod(sizes))].reshape(sizes)
    want = [evaluate_one(v, d) for v in x.reshape(-1).tolist()[:200]]
    got = x.to(d)
    assert [str(v) for v in got.reshape(-1).tolist()[:200]] == [str(v) for v in want]
    if len(sizes) == 2:
        assert_same(x.t().to(d), got.t().contiguous())
        assert_same(x[::2, 1::3].to(d), got[::2, 1::3].contiguous())
        assert_same(got.t().float(), got.float().t().contiguous())
        assert_same(got[1:, ::5].clone(), got.contiguous()[1:, ::5].contiguous())
        out = F.zeros(sizes, dtype=d)
        out[:, ::2] = got[:, ::2]
        out[:, 1::2] = got[:, 1::2]
        assert_same(out, got)
        assert_same(got[:1].expand(3, -1).contiguous(), F.cat([got[:1]] * 3))


def evaluate_one(value, d):
    return F.tensor(value, dtype=F.float32).to(d).item()


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_arrays_of_numpy_share_memory_both_ways(dtype):
    a = np.array([[0, 1, 7], [2, np.iinfo(dtype).max, 3]], dtype)
    t = F.from_numpy(a)
    assert t.dtype == getattr(F, dtype) and t.tolist() == a.tolist()
    t[0, 1] = 9
    assert a[0, 1] == 9
    back = t.t().numpy()
    assert back.dtype == a.dtype and np.array_equal(back, a.T) and np.shares_memory(back, a)
    assert (
        np.array_equal(np.asarray(t), a)
        and F.tensor(a).dtype == t.dtype
        and F.as_tensor(a[1, 1]).item() == a[1, 1]
    )
    assert np.array_equal(np.from_dlpack(t), a)


@pytest.mark.parametrize("dtype", [*FLOAT8, "complex32"])
def test_numpy_has_no_such_dtype(dtype):
    with pytest.raises(TypeError, match=dtype):
        F.zeros(2, dtype=getattr(F, dtype)).numpy()


@pytest.mark.parametrize("dtype", LIMITED)
def test_dlpack_and_buffers_keep_dtype_and_memory(dtype):
    d = getattr(F, dtype)
    x = F.tensor([[1, 2], [4, 8]], dtype=d)
    y = F.from_dlpack(x.t())
    assert y.dtype == d and y.data_ptr() == x.data_ptr() and y.tolist() == x.t().tolist()
    memory = bytearray(x.view(F.uint8).reshape(-1).tolist())
    z = F.frombuffer(memory, dtype=d)
    assert z.tolist() == x.reshape(-1).tolist()
    memory[0:2] = memory[2:4] if x.element_size() < 4 else memory[0:2]
    assert F.frombuffer(memory, dtype=d).tolist() == z.tolist()


def parts(dtype):
    x = F.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]]).to(getattr(F, dtype))
    return {"t": x, "part": x[:, 1:], "dtype": x.dtype}


@pytest.mark.parametrize("dtype", LIMITED)
@pytest.mark.parametrize("form", ["saved", "stream"])
def test_checkpoints_of_pytorch_are_read(form, dtype):
    data = base64.b64decode(RECORDED[f"{form} {dtype}"])
    got, want = F.load(io.BytesIO(data)), parts(dtype)
    assert got["dtype"] == want["dtype"]
    for name in ("t", "part"):
        assert_same(got[name], want[name])
    assert got["part"].stride() == (3, 1) and got["part"].storage_offset() == 1
    assert got["part"].data_ptr() == got["t"].data_ptr() + got["t"].element_size()


def globals_of(data):
    import pickletools

    return [arg for op, arg, _ in pickletools.genops(data) if op.name == "GLOBAL"]


@pytest.mark.parametrize("dtype", LIMITED)
def test_checkpoints_are_written_with_pytorchs_names(dtype):
    import zipfile

    def pickled(data):
        archive = zipfile.ZipFile(io.BytesIO(data))
        return archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))

    file = io.BytesIO()
    F.save(parts(dtype), file)
    theirs = globals_of(pickled(base64.b64decode(RECORDED[f"saved {dtype}"])))
    assert globals_of(pickled(file.getvalue())) == theirs
    assert f"torch {dtype}" in theirs and "torch._utils _rebuild_tensor_v3" in theirs


@pytest.mark.parametrize("dtype", LIMITED)
def test_ways_of_saving_return_what_was_saved(dtype, tmp_path):
    want = parts(dtype)
    copies = [copy.deepcopy(want), pickle.loads(pickle.dumps(want))]
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        file = io.BytesIO()
        F.save(want, file, **options)
        file.seek(0)
        copies.append(F.load(file))
    F.save(want, tmp_path / "x.pt")
    copies.append(F.load(tmp_path / "x.pt", mmap=True))
    for got in copies:
        assert_same(got["t"], want["t"])
        assert_same(got["part"], want["part"])
        assert got["dtype"] is want["dtype"]
    layer = F.nn.Linear(2, 3).to(getattr(F, dtype)) if dtype not in UNSIGNED else None
    if layer:
        other = F.nn.Linear(2, 3).to(getattr(F, dtype))
        other.load_state_dict(layer.state_dict())
        assert_same(other.weight.detach(), layer.weight.detach())


def test_bytes_that_a_tensor_of_a_checkpoint_does_not_have():
    from facula._utils import _rebuild_tensor_v3

    memory = F.zeros(5, dtype=F.uint8).untyped_storage()
    assert _rebuild_tensor_v3(memory, 0, (2,), (1,), False, None, F.uint16).tolist() == [0, 0]
    for bad in ((0, (3,), (1,), F.uint16), (2, (1,), (1,), F.uint16), (0, (2,), (1,), "uint16")):
        offset, size, stride, d = bad
        with pytest.raises(pickle.UnpicklingError):
            _rebuild_tensor_v3(memory, offset, size, stride, False, None, d)


def test_safetensors_names_of_dtypes():
    names = {
        "uint16": "U16",
        "uint32": "U32",
        "uint64": "U64",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
        "float8_e8m0fnu": "F8_E8M0",
    }
    tensors = {d: F.tensor([[1, 2], [4, 8]], dtype=getattr(F, d)) for d in names}
    data = facula.safetensors.save(tensors)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert {d: header[d]["dtype"] for d in names} == names
    for d, t in facula.safetensors.load(data).items():
        assert_same(t, tensors[d])
    with pytest.raises(ValueError, match="complex32"):
        facula.safetensors.save({"x": F.zeros(1, dtype=F.complex32)})


@pytest.mark.parametrize("dtype", [*FLOAT8, "complex32"])
def test_gradients_travel_through_conversions(dtype):
    x = F.tensor([1.0, 2.0, 4.0], requires_grad=True)
    (x.to(getattr(F, dtype)).to(F.complex64).real * F.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 4.0] and x.grad.dtype == F.float32


@pytest.mark.parametrize("dtype", LIMITED)
def test_programs_round_where_calls_do(dtype):
    d = getattr(F, dtype)

    def f(x):
        y = x.to(d)
        return y.to(F.float32) + 1, y == y, y.clone()

    x = F.from_numpy(sample()[3::997].copy())
    for got, want in zip(F.compile(f)(x), f(x)):
        assert_same(got, want)


def test_unsupported_operators_name_themselves_and_the_dtype():
    for call, name in ((lambda x: x + 1, "add"), (lambda x: x.sum(), "sum"), (lambda x: x.exp(), "exp")):
        with pytest.raises(NotImplementedError, match=f"{name}.*float8_e4m3fn"):
            call(F.ones(2, dtype=F.float8_e4m3fn))
    with pytest.raises(NotImplementedError, match="add.*uint16"):
        F.ones(2, dtype=F.uint16) + F.ones(2, dtype=F.uint16)
    with pytest.raises(RuntimeError, match="uint16 and int64|int64 and uint16"):
        F.ones(2, dtype=F.uint16) * F.ones(2, dtype=F.int64)


def test_scaled_mm_is_the_scaled_product():
    rng = np.random.Generator(np.random.PCG64(3))
    a, b = (F.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((9, 32), (32, 17)))
    a8, b8 = a.to(F.float8_e4m3fn), b.to(F.float8_e5m2)
    product = a8.double().numpy() @ b8.double().numpy()
    half, three = F.tensor(0.5), F.tensor([3.0])
    y = F._scaled_mm(a8, b8, half, three, out_dtype=F.float32)
    assert y.dtype == F.float32
    np.testing.assert_allclose(y.numpy(), product * 1.5, rtol=1e-6, atol=1e-5)
    rows, columns = F.rand(9, 1) + 0.5, F.rand(1, 17) + 0.5
    bias = F.randn(17)
    y = F._scaled_mm(a8, b8, rows, columns, bias=bias, out_dtype=F.float32)
    want = product * rows.numpy() * columns.numpy() + bias.numpy()
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-5)
    y = F._scaled_mm(a8, b8, half, three, scale_result=F.tensor(2.0))
    assert_same(y, F.from_numpy((product * 0.75).astype(np.float32)).to(F.float8_e4m3fn))
    assert F._scaled_mm(a8, b8, half, three, out_dtype=F.bfloat16).dtype == F.bfloat16
    for bad in ((a, b, half, three), (a8, b8, half.double(), three), (a8, b8, F.ones(9), F.ones(17))):
        with pytest.raises(ValueError, match="scales"):
            F._scaled_mm(*bad)
    with pytest.raises(RuntimeError, match="multiplied"):
        F._scaled_mm(a8, a8, half, three)
    with pytest.raises(RuntimeError, match="bias"):
        F._scaled_mm(a8, b8, half, three, bias=F.ones(3))


def test_scaled_mm_computes_in_the_dtype_of_out():
    a = F.tensor([[0.25, 0.5], [1.0, 3.0]]).to(F.float8_e4m3fn)
    scales = F.tensor(1.0), F.tensor(1.03)
    out = F.empty(0, dtype=F.float64)
    assert F._scaled_mm(a, a.T, *scales, out=out) is out
    product = a.double().numpy() @ a.double().numpy().T
    np.testing.assert_allclose(out.numpy(), product * np.float32(1.03), rtol=1e-7)
    with pytest.raises(ValueError, match="expected out tensor to have dtype bfloat16, but got float64"):
        F._scaled_mm(a, a.T, *scales, out_dtype=F.bfloat16, out=out)


def test_scaled_mm_of_nn_functional_takes_recipes():
    G = F.nn.functional
    a, b = F.randn(4, 32).to(F.float8_e4m3fn), F.randn(32, 6).to(F.float8_e5m2)
    one, rows, columns = F.tensor([0.5]), F.rand(4, 1) + 0.5, F.rand(1, 6) + 0.5
    whole, lines, blocks = (G.ScalingType[n] for n in ("TensorWise", "RowWise", "BlockWise1x128"))
    y = G.scaled_mm(a, b, one, whole, one, whole)
    assert_same(y, F._scaled_mm(a, b, one, one, out_dtype=F.bfloat16))
    y = G.scaled_mm(a, b, [rows], [lines], columns, lines, bias=F.ones(6), output_dtype=F.float32)
    assert_same(y, F._scaled_mm(a, b, rows, columns, bias=F.ones(6), out_dtype=F.float32))
    assert G.scaled_mm(a, b, one, whole, one, whole, output_dtype=None).dtype == F.float8_e4m3fn
    for bad in (
        (rows, lines, one, whole),
        (one, whole, one, lines),
        (rows, blocks, columns, blocks),
        ([one, one], [whole, whole], one, whole),
        ([one, one], whole, one, whole),
    ):
        with pytest.raises(ValueError, match="invalid scaling configuration"):
            G.scaled_mm(a, b, *bad)
    with pytest.raises(ValueError, match="arranged scales"):
        G.scaled_mm(a, b, one, whole, one, whole, swizzle_a=G.SwizzleType.SWIZZLE_32_4_4)


def test_sets_of_operators_do_not_grow_by_limited_dtypes():
    taking = {
        o["name"]
        for o in F._C.operators()
        if F._C.inspect_operator(o["name"] + ("." + o["overload"] if o["overload"] else ""))["limited_dtypes"]
    }
    assert {"mul", "eq", "cat", "to_dtype", "sort", "sum"} <= taking
    assert taking.isdisjoint({"exp", "softmax", "mm", "conv2d", "lt", "maximum", "div", "pow"})


@pytest.mark.parametrize("dtype", LIMITED)
def test_assert_close_compares(dtype):
    x = F.tensor([1, 2, 4], dtype=getattr(F, dtype))
    F.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError, match="1 / 3"):
        F.testing.assert_close(x, F.tensor([1, 2, 8], dtype=x.dtype))
