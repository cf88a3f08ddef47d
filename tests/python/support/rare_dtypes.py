"""Calls on dtypes that few operators compute with, as expressions over a module ``T`` (facula, or PyTorch
where tests/golden/record_rare_dtypes.py records its answers), and how their answers are written down.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

UNSIGNED = ("uint16", "uint32", "uint64")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
LIMITED = (*UNSIGNED, *FLOAT8, "complex32")
COMMON = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()

# Numbers that conversions are tried on: ordinary, negative, with fractions, at limits, beyond them, and none.
REALS = (
    "[0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -2.75, 0.3, 7.0, 17.0, 19.0, 100.5, 239.0, 241.0, 248.0, 255.9, "
    "256.5, 447.0, 449.0, 463.9, 464.0, 464.1, 480.0, 65504.0, 65535.0, 65536.0, -3e4, 1e-3, 2.0**-9, "
    "2.0**-10, 3 * 2.0**-11, 2.0**-16, 2.0**-17, 1.1 * 2.0**-17, 2147483647.0, 2147483648.0, "
    "4294967296.0, -4294967297.0, 1e10, 2.0**63, 1.5 * 2.0**63, 2.0**64, -2.0**63, 1e30, "
    "float('inf'), -float('inf'), float('nan')]"
)
INTEGERS = (
    "[0, 1, -1, 2, 5, 100, 255, 256, 449, -7, 32767, 65535, 65536, 2**31, 2**32 + 3, 2**53 + 1, 2**62 "
    "+ 1, -2**63]"
)
WIDE = "[0, 1, 255, 65535, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 2**39 + 1, 2**64 - 1]"


def calls() -> list[str]:
    """Expressions; ``x`` and ``y`` are [[3, 1, 2], [2, 4, 8]] of the dtype that ``D`` is."""
    out = []
    for d in LIMITED:
        # What fits no uint32 PyTorch converts one way in vectors and another way in what is left.
        reals = REALS
        for beyond in (", -float('inf'), float('nan')", " -4294967297.0,", " -2.0**63,"):
            reals = reals.replace(beyond, "") if d == "uint32" else reals
        for source in ("float16", "bfloat16", "float32", "float64"):
            out.append(f"T.tensor({reals}, dtype=T.{source}).to(T.{d})")
        out.append(f"T.tensor({INTEGERS}).to(T.{d})")
        out.append(f"T.tensor({WIDE}, dtype=T.uint64).to(T.{d})")
        out.append(f"T.tensor([[True, False]]).to(T.{d})")
        out.append(f"T.tensor([1.5 + 2j, -3 + 0j, 1e5 - 1e-3j]).to(T.{d})")
        for target in (*COMMON, *LIMITED):
            out.append(f"T.tensor({INTEGERS[:-9]}, 300, 1000]).to(T.{d}).to(T.{target})")
        for other in (*COMMON, *LIMITED):
            out.append(f"T.promote_types(T.{d}, T.{other})")
            out.append(f"T.can_cast(T.{d}, T.{other}), T.can_cast(T.{other}, T.{d})")
        out += [form.replace("D", f"T.{d}") for form in FORMS]
        for name in OPERATORS:
            call = name if name.startswith("T.") else "x" + name
            out.append(re.sub(r"\b[xy]\b", f"T.tensor([[3.0, 1, 2], [2, 4, 8]]).to(T.{d})", call))
    return out + list(OTHERS)


FORMS = (
    "D",
    "D.is_floating_point, D.is_complex, D.is_signed, D.itemsize",
    "T.zeros(2, dtype=D)",
    "T.ones(2, 2, dtype=D)",
    "T.full((2,), 3, dtype=D)",
    "T.full((2,), True, dtype=D)",
    "T.full((1,), 1000.0, dtype=D)",
    "T.full((1,), -1, dtype=D)",
    "T.full((1,), 1e6, dtype=D)",
    "T.full((1,), float('inf'), dtype=D)",
    "T.empty(0, 3, dtype=D)",
    "T.zeros_like(T.ones(2), dtype=D)",
    "T.ones(2).new_tensor([1, 2], dtype=D)",
    "T.tensor([1, 2, 3], dtype=D)",
    "T.tensor(2.5, dtype=D)",
    "T.tensor([], dtype=D)",
    "T.tensor([-1], dtype=D)",
    "T.tensor([70000], dtype=D)",
    "T.tensor([2**40], dtype=D)",
    "T.tensor([1j], dtype=D)",
    "T.arange(3, dtype=D)",
    "T.linspace(0, 1, 3, dtype=D)",
    "T.tensor([3], dtype=D).item()",
    "T.tensor([[3], [4]], dtype=D).tolist()",
    "int(T.tensor([3], dtype=D)), float(T.tensor([4], dtype=D)), bool(T.tensor([2], dtype=D))",
    "T.tensor([1, 2, 3], dtype=D).type()",
    "T.ones(2).type(D)",
    "repr(T.tensor([1, 2, 3], dtype=D))",
    "repr(T.tensor(2, dtype=D))",
    "repr(T.zeros(2, 0, dtype=D))",
    "repr(T.ones(2, 2, dtype=D) == 1)",
    "T.ones(2, dtype=D).is_floating_point(), T.ones(2, dtype=D).is_complex(), T.ones(2, dtype=D).is_signed()",
    "T.ones(2, dtype=D).element_size(), T.ones(2, 3, dtype=D).nbytes",
    "T.finfo(D)",
    "T.iinfo(D)",
    "T.finfo(D).bits, T.finfo(D).eps, T.finfo(D).max, T.finfo(D).min, T.finfo(D).tiny, T.finfo(D).resolution",
    "T.iinfo(D).bits, T.iinfo(D).max, T.iinfo(D).min",
    "D.to_real()",
    "T.result_type(T.ones(2, dtype=D), 1)",
    "T.result_type(T.ones(2, dtype=D), 1.5)",
    "T.result_type(T.ones(2, dtype=D), T.tensor(1.5))",
    "T.result_type(T.ones(2, dtype=D), T.ones(2))",
    "T.result_type(T.ones(2, dtype=D), T.ones(2, dtype=T.int8))",
    "T.result_type(T.tensor(1, dtype=D), T.ones(2, dtype=T.int32))",
    "T.zeros(2, dtype=D).copy_(T.tensor([1.5, 200.0]))",
    "T.zeros(2).copy_(T.tensor([2, 4], dtype=D))",
    "T.zeros(2, dtype=D).fill_(2)",
    "T.ones(2, dtype=D).zero_()",
    "T.tensor([0, 1, 2], dtype=D).bool()",
    "T.tensor([1, 2], dtype=D).float(), T.tensor([1, 2], dtype=D).half(), T.tensor([1, 2], dtype=D).long()",
    "T.tensor([1, 2], dtype=D).chalf(), T.tensor([1, 2], dtype=D).cfloat()",
    "T.tensor([[1, 2], [4, 8]], dtype=D).t().contiguous()",
    "T.tensor([[1, 2], [4, 8]], dtype=D)[1:, ::2]",
    "T.tensor([[1, 2], [4, 8]], dtype=D)[:, T.tensor([1, 0, 1])]",
    "T.cat([T.ones(2, dtype=D), T.zeros(1, dtype=D)])",
    "T.cat([T.ones(2, dtype=D), T.ones(2, dtype=T.int64)])",
    "T.stack([T.ones(2, dtype=D), T.zeros(2, dtype=D)], 1)",
    "T.ones(2, dtype=D).clone(), T.ones(2, dtype=D).expand(2, 2).contiguous()",
    "T.where(T.tensor([True, False]), T.ones(2, dtype=D), T.tensor([2, 4], dtype=D))",
    "T.where(T.tensor([True, False]), T.ones(2, dtype=D), 2)",
    "T.tensor([1, 2], dtype=D) == T.tensor([1, 4], dtype=D)",
    "T.tensor([1, 2], dtype=D) != 2",
    "T.tensor([1, 2], dtype=D) == T.tensor([1, 2])",
    "T.equal(T.tensor([1, 2], dtype=T.float32).to(D), T.tensor([1, 2]).to(D))",
    "T.tensor([1.0, 2.0, 3.0]).to(D).view(T.uint8)",
    "T.arange(16, dtype=T.uint8).view(D)",
    "T.tensor([1.0, 2.0]).requires_grad_().to(D).requires_grad",
    "T.nn.Linear(2, 2).to(D).weight.dtype",
    "T.nn.functional.embedding(T.tensor([1, 0]), T.tensor([[1, 2], [4, 8]], dtype=D))",
    "T.nn.functional.pad(T.ones(2, dtype=D), (1, 1), value=2)",
    "T.ones(2, dtype=D) + 1.5",
    "T.ones(2, dtype=D) * 2",
    "T.ones(2, dtype=D) * T.tensor([2.0, 4.0])",
    "T.ones(2).add_(T.ones(2, dtype=D))",
    "T.ones(2, dtype=D).add_(1)",
    "T.ones(2, dtype=D).sum(dtype=D)",
    "T.set_default_dtype(D)",
    "T.ones(3)[T.ones(2, dtype=D)]",
)
# With x and y, or methods of x.
OPERATORS = (
    "T.add(x, y)",
    "T.sub(x, y)",
    "T.mul(x, y)",
    "T.div(x, y)",
    "T.floor_divide(x, y)",
    "T.remainder(x, y)",
    "T.pow(x, 2)",
    "T.maximum(x, y)",
    "T.lt(x, y)",
    "T.ge(x, 2)",
    "T.bitwise_and(x, y)",
    "T.bitwise_or(x, y)",
    "T.bitwise_xor(x, y)",
    "T.bitwise_not(x)",
    "T.bitwise_left_shift(x, y)",
    "T.logical_and(x, y)",
    "T.logical_not(x)",
    "T.gcd(x, y)",
    ".neg()",
    ".abs()",
    ".sign()",
    ".floor()",
    ".ceil()",
    ".round()",
    ".trunc()",
    ".exp()",
    ".sqrt()",
    ".sin()",
    ".relu()",
    ".isnan()",
    ".isinf()",
    ".isreal()",
    ".sum()",
    ".sum(0)",
    ".prod()",
    ".mean()",
    ".any()",
    ".all(1)",
    ".amax()",
    ".max()",
    ".argmax()",
    ".median()",
    ".cumsum(0)",
    ".cumprod(1)",
    ".sort()[0]",
    ".sort(descending=True)[1]",
    ".argsort()",
    ".unique()",
    ".topk(2)",
    ".clamp(1, 2)",
    ".real",
    ".conj()",
    ".abs().dtype",
    ".t()",
    ".flatten()",
    ".repeat(1, 2)",
    ".roll(1)",
    ".diagonal()",
    ".unfold(1, 2, 1)",
    ".uniform_().dtype",
    ".random_().dtype",
    ".nan_to_num()",
    ".signbit()",
    ".angle()",
    ".softmax(0)",
    ".index_select(1, T.tensor([2, 0]))",
    ".dot(y)",
    "T.outer(x[0], y[0])",
    "T.lerp(x, y, 0.5)",
    "T.addcdiv(x, x, y)",
    "T.hypot(x, y)",
    "T.atan2(x, y)",
    ".nansum()",
    ".histc()",
    ".erf()",
    "T.float_power(x, 2)",
)
OTHERS = (
    "T.tensor(2**63)",
    "T.tensor(2**64, dtype=T.uint64)",
    "T.tensor([2**64 - 1], dtype=T.uint64).item()",
    "T.tensor([2**64 - 1, 0], dtype=T.uint64).tolist()",
    "repr(T.tensor([2**64 - 1, 7], dtype=T.uint64))",
    "T.full((1,), 2**63, dtype=T.uint64)",
    "T.full((1,), 2**63)",
    "T.full((1,), 2**63, dtype=T.float32)",
    "T.tensor([2**63], dtype=T.uint64) == 2**63",
    "T.tensor([1.0]) * 2**63",
    "T.tensor([1]) * 2**63",
    "T.tensor([3], dtype=T.uint64) * 2**63",
    "T.tensor([65535], dtype=T.uint16) == -1",
    "T.tensor([2], dtype=T.uint16) * -1",
    "T.tensor([2], dtype=T.uint16) * 70000",
    "T.tensor([60000, 5], dtype=T.uint16) * T.tensor([2, 3], dtype=T.uint16)",
    "T.tensor([2**64 - 1, 1, 2**63], dtype=T.uint64).sort()",
    "T.tensor([2**64 - 1, 1, 2**63], dtype=T.uint64).unique()",
    "T.tensor([2**31, 1, 2**32 - 1], dtype=T.uint32).sort(descending=True)",
    "T.tensor([2**64 - 1, 5], dtype=T.uint64).sum()",
    "T.tensor([2**64 - 1, 2**63], dtype=T.uint64).exp()",
    "T.tensor([2**32 - 1, 2**31], dtype=T.uint32).cumsum(0)",
    "T.tensor([40000, 50000], dtype=T.uint16).prod()",
    "T.tensor([2**64 - 1], dtype=T.uint64) & 255",
    "T.tensor([2**64 - 1], dtype=T.uint64) ^ T.tensor([1], dtype=T.uint64)",
    "T.tensor([2**64 - 1], dtype=T.uint64) / 2",
    "range(5)[T.tensor(3, dtype=T.uint16)]",
    "T.zeros(3)[T.tensor(2, dtype=T.uint16)]",
    "T.randint(0, 1, (3,), dtype=T.uint16)",
    "T.ones(2, dtype=T.float16) * 1j",
    "T.ones(2, dtype=T.bfloat16) * 1j",
    "T.float16.to_complex()",
    "T.complex32.to_complex()",
    "T.float8_e5m2.to_complex()",
    "T.uint16.to_complex()",
    "T.view_as_real(T.tensor([1 + 2j, -0.5j], dtype=T.complex32))",
    "T.view_as_complex(T.tensor([[1, 2], [3, 4]], dtype=T.float16))",
    "T.view_as_complex(T.tensor([[1, 2], [3, 4]], dtype=T.bfloat16))",
    "T.complex(T.tensor([1.0, 2]).half(), T.tensor([3.0, 4]).half())",
    "T.tensor([3 + 4j], dtype=T.complex32).abs()",
    "T.tensor([3 + 4j], dtype=T.complex32).imag",
    "T.tensor([3 + 4j], dtype=T.complex32).conj().imag",
    "T.tensor([3 + 4j, 1], dtype=T.complex32) * T.tensor([1 - 2j, 7j], dtype=T.complex32)",
    "T.tensor([3 + 4j, 1], dtype=T.complex32) - 1j",
    "T.tensor([3 + 4j, 1], dtype=T.complex32) + T.tensor([1j, 1])",
    "T.tensor([3 + 4j, 1], dtype=T.complex32) == T.tensor([3 + 4j, 2])",
    "-T.tensor([3 + 4j, 1], dtype=T.complex32)",
    "T.tensor([1e6 + 1j], dtype=T.complex32)",
    "T.full((1,), 1e6, dtype=T.complex32)",
    "T.randn(3, dtype=T.complex32).dtype",
    "T.rand(3, dtype=T.complex32).dtype",
    "repr(T.tensor([1 + 2j, -0.25j, 1e4], dtype=T.complex32))",
    "complex(T.tensor(1 + 2j, dtype=T.complex32))",
    "T.tensor([1 + 2j], dtype=T.complex32).float()",
    "T.ones(2, dtype=T.float8_e4m3fn) * 1000.0",
    "T.ones(2, dtype=T.float8_e5m2) == T.tensor(1.0)",
    "(lambda x: x * x)(T.tensor([448.0, 3]).to(T.float8_e4m3fn))",
    "T.tensor([1.5, 3]).to(T.float8_e5m2) * T.tensor([1.25, 2.5]).to(T.float8_e5m2)",
    "repr(T.tensor([1.5, 2, 448]).to(T.float8_e4m3fn))",
    "repr(T.tensor([1e-3, 2, 5e4]).to(T.float8_e5m2))",
    "T.tensor([[1.0, -2], [-4, 0.5]]).to(T.float8_e5m2).abs()",
    "T.tensor([float('nan'), 1]).to(T.float8_e4m3fn) == T.tensor([float('nan'), 1]).to(T.float8_e4m3fn)",
    "T.tensor([float('nan'), 0, -0.0]).to(T.float8_e5m2).bool()",
)


def evaluate(T: Any, expression: str) -> Any:
    """The answer to a call as JSON has it: the name of the error's type where it raises."""
    try:
        return written(eval(expression, {"T": T}))
    except Exception as error:
        return "!" + type(error).__name__


def written(x: Any) -> Any:
    if hasattr(x, "tolist") and hasattr(x, "dtype"):
        return [str(x.dtype).rpartition(".")[2], repr(x.tolist())]
    if isinstance(x, tuple):
        return [written(v) for v in x]
    return repr(x).replace("facula.", "").replace("torch.", "")


def sample() -> np.ndarray:
    """float32 numbers: all of bfloat16 and float16, random bits, and numbers of many sizes."""
    short = np.arange(65536, dtype=np.uint32)
    rng = np.random.Generator(np.random.PCG64(14))
    with np.errstate(over="ignore"):
        sizes = rng.standard_normal(200_000) * np.exp(rng.uniform(-100, 100, 200_000))
        return np.concatenate(
            [
                (short << 16).view(np.float32),
                short.astype(np.uint16).view(np.float16).astype(np.float32),
                rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32),
                sizes.astype(np.float32),
                (rng.standard_normal(200_000) * 30).astype(np.float32),
            ]
        )


def digest(a: np.ndarray) -> str:
    """Of numbers; one NaN is as good as another."""
    if a.dtype == np.float32:
        a = np.where(np.isnan(a), np.float32(np.nan), a)
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def digests(T: Any, dtype: str) -> dict[str, str]:
    """What all 256 codes of a float8 are as float32, and the codes of ``sample`` from each dtype."""
    d = getattr(T, dtype)
    codes = T.from_numpy(np.arange(256, dtype=np.uint8)).view(d)
    decoded = codes.float().numpy()
    out = {"decoded": digest(decoded)}
    x = T.from_numpy(sample())
    for source in ("float32", "float64", "float16", "bfloat16"):
        given = x.to(getattr(T, source))
        got = given.to(d).view(T.uint8).numpy()
        out[source] = digest(np.where(np.isnan(decoded[got]), np.uint8(255), got))
        out["to " + source] = digest(codes.to(getattr(T, source)).float().numpy())
    return out
