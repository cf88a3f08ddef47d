"""Switches of PyTorch's backends. Those of GPUs are stored and have no effect; the CPU's libraries are
always available.
"""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

__path__ = [
    str(Path(__file__).with_name("_backends"))
]  # _nnapi; others are objects: import facula.backends.cudnn

fp32_precision = "none"


class _Backend(ModuleType):
    """The switches of a backend; ``available`` is the result of is_available."""

    def __init__(self, name: str, available: bool, **switches: Any) -> None:
        super().__init__(f"facula.backends.{name}")
        sys.modules[self.__name__] = self
        self.__dict__.update(switches)
        self._available = available

    def is_available(self) -> bool:
        return self._available

    def is_built(self) -> bool:
        return self._available


def _flags(backend: _Backend, *names: str) -> Callable:
    """Returns ``backend.flags``, which sets switches within a ``with`` block."""

    @contextlib.contextmanager
    def flags(*args: Any, **values: Any) -> Iterator[None]:
        values.update(zip(names, args))
        if not values.keys() <= set(names):
            raise TypeError(
                f"flags() got an unexpected keyword argument '{(values.keys() - set(names)).pop()}'"
            )
        before = {k: getattr(backend, k) for k in values}
        backend.__dict__.update(values)
        try:
            yield
        finally:
            backend.__dict__.update(before)

    return flags


class _LinalgBackend(enum.Enum):
    Default, Cusolver, Magma = 0, 1, 2


class _BlasBackend(enum.Enum):
    Cublas, Cublaslt, Ck = 0, 1, 2


class _Matmul(_Backend):
    """The switches of matrix products on GPUs; setting unknown ones raises an error."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self.__dict__:
            raise AttributeError(f"Unknown attribute {name}")
        super().__setattr__(name, value)


class _Verbose:
    """Has no effect: would make a library log its calls; ``FACULA_LOG`` logs ours."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> _Verbose:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


cudnn = _Backend(
    "cudnn", False, enabled=True, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True,
    version=lambda: None, is_acceptable=lambda tensor: False,
)  # fmt: skip
cudnn.flags = _flags(cudnn, "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_matmul = _Matmul("cuda.matmul", False)
_matmul.__dict__.update(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False,
    fp32_precision="none",
)
cuda = _Backend("cuda", False, matmul=_matmul, cufft_plan_cache=None)
mps = _Backend("mps", False)
mkldnn = _Backend("mkldnn", True, enabled=True, deterministic=False, allow_tf32=True, verbose=_Verbose,
                  VERBOSE_OFF=0, VERBOSE_ON=1, VERBOSE_ON_CREATION=2)  # fmt: skip
mkldnn.flags = _flags(mkldnn, "enabled", "deterministic", "allow_tf32")
openmp = _Backend("openmp", True)
mkl = _Backend("mkl", False, VERBOSE_OFF=0, VERBOSE_ON=1, verbose=_Verbose)
opt_einsum = _Backend("opt_einsum", False, enabled=False, strategy=None, get_opt_einsum=lambda: None)
quantized = _Backend(
    "quantized", False, engine="x86", supported_engines=["qnnpack", "none", "onednn", "x86", "fbgemm"]
)
cpu = _Backend("cpu", True)
nnpack = _Backend("nnpack", False)
cusparselt = _Backend("cusparselt", False, version=lambda: None)
_fast_path = [True]
# The fast path of Transformer layers: there is only one path, whatever this says.
mha = _Backend(
    "mha",
    True,
    get_fastpath_enabled=lambda: _fast_path[0],
    set_fastpath_enabled=partial(_fast_path.__setitem__, 0),
)


def _attention_switches() -> None:
    """Defines the switches of attention kernels: there is only one kernel, whatever they say."""
    kinds = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}

    def pair(kind: str) -> tuple[Callable, Callable]:
        def enable(enabled: bool) -> None:
            kinds[kind] = bool(enabled)

        return enable, lambda: kinds[kind]

    for kind in kinds:
        enable, enabled = pair(kind)
        setattr(cuda, f"enable_{kind}_sdp", enable)
        setattr(cuda, f"{kind}_sdp_enabled", enabled)

    @contextlib.contextmanager
    def sdp_kernel(
        enable_flash: bool = True,
        enable_math: bool = True,
        enable_mem_efficient: bool = True,
        enable_cudnn: bool = True,
    ) -> Iterator[None]:
        before = dict(kinds)
        choices = (enable_flash, enable_mem_efficient, enable_math, enable_cudnn)
        kinds.update(zip(kinds, map(bool, choices)))
        try:
            yield
        finally:
            kinds.update(before)

    reduced = [False]
    cuda.sdp_kernel = sdp_kernel
    cuda.allow_fp16_bf16_reduction_math_sdp = lambda enabled: reduced.__setitem__(0, bool(enabled))
    cuda.fp16_bf16_reduction_math_sdp_allowed = lambda: reduced[0]
    cuda.is_flash_attention_available = lambda: False
    cuda.is_ck_sdpa_available = lambda: False


def _preferred(kinds: type[enum.Enum], first: enum.Enum) -> Callable:
    chosen = [first]

    def preferred(backend: Any = None) -> Any:
        """Returns the preferred library of a GPU; sets it if an argument is passed."""
        if backend is not None:
            names = {k.name.lower(): k for k in kinds}
            choice = names.get(backend.lower()) if isinstance(backend, str) else backend
            if not isinstance(choice, kinds):
                raise RuntimeError(f"Unknown input value. Choose from: {', '.join(names)}.")
            chosen[0] = choice
        return chosen[0]

    return preferred


def _no_mps(major: int = 0, minor: int = 0) -> bool:
    raise RuntimeError("Cannot execute isOnMacOSorNewer() without MPS backend.")


def _cpu_capability() -> str:
    """Returns the instruction set of kernels, by PyTorch's names: DEFAULT, AVX2, AVX512."""
    import os

    asked = os.environ.get("FACULA_CPU_CAPABILITY", "")
    try:
        flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    except OSError:
        flags = set()
    if "avx512f" in flags and asked != "avx2":
        return "AVX512"
    return "AVX2" if "avx2" in flags else "DEFAULT"


_attention_switches()
cuda.preferred_linalg_library = _preferred(_LinalgBackend, _LinalgBackend.Default)
cuda.preferred_blas_library = _preferred(_BlasBackend, _BlasBackend.Cublas)
mps.is_macos_or_newer = mps.is_macos13_or_newer = _no_mps
cpu.get_cpu_capability = _cpu_capability
