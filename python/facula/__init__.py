"""Facula: tensors, gradients and training, with PyTorch's names and meanings.

``import facula as torch`` is enough for most programs. The import loads the native module only: nn,
optim, autograd and others are imported at first use.
"""

from __future__ import annotations

from . import _C

TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers: all names, including those that are imported at first use
    from ._lazy import *  # the contents of the tables below
    from ._queries import *
    from ._modes import *
    from ._C import *
    from ._C.ops import *

    # Repeated although stubs declare it too: mypy uses the first declaration and pyright the last.
    from ._queries import can_cast as can_cast
    from ._queries import einsum as einsum
    from ._modes import set_grad_enabled as set_grad_enabled
    from ._ops import ops as ops
else:
    from ._C import (
        Generator,
        Size,
        SymInt,
        Tensor,
        as_tensor,
        asarray,
        channels_last,
        channels_last_3d,
        contiguous_format,
        default_generator,
        device,
        dtype,
        empty_cache,
        from_dlpack,
        from_numpy,
        frombuffer,
        get_default_dtype,
        get_num_threads,
        is_grad_enabled,
        is_inference_mode_enabled,
        jagged,
        layout,
        manual_seed,
        memory_format,
        memory_stats,
        preserve_format,
        promote_types,
        reset_peak_memory,
        set_default_dtype,
        set_num_threads,
        sparse_bsc,
        sparse_bsr,
        sparse_coo,
        sparse_csc,
        sparse_csr,
        strided,
        tensor,
    )

__version__ = "0.1.0"

globals().update((_name, _f) for _name, _f in vars(_C.functions).items() if not _name.startswith("_"))
for _name in ("batch_norm", "binary_cross_entropy_with_logits", "ctc_loss", "kl_div", "layer_norm"):
    del globals()[
        _name
    ]  # the functions of nn.functional, whose parameters have another order than those here

# Imported after the operators: functions written in Python, and the grad modes.
from . import __config__ as __config__  # noqa: E402
from . import __future__ as __future__  # noqa: E402
from . import _tensor  # noqa: E402  (completes Tensor)

if not TYPE_CHECKING:
    from ._queries import (
        adjoint,
        allclose,
        atleast_1d,
        atleast_2d,
        atleast_3d,
        broadcast_shapes,
        broadcast_tensors,
        can_cast,
        cartesian_prod,
        cdist,
        einsum,
        equal,
        finfo,
        get_rng_state,
        iinfo,
        initial_seed,
        is_complex,
        is_conj,
        is_floating_point,
        is_neg,
        is_nonzero,
        is_storage,
        is_tensor,
        meshgrid,
        nonzero,
        numel,
        result_type,
        row_stack,
        seed,
        set_rng_state,
        to_dlpack,
        typename,
    )
    from ._modes import (
        enable_grad,
        get_default_device,
        inference_mode,
        no_grad,
        set_default_device,
        set_grad_enabled,
    )

for _name, _d in vars(_C).items():
    if type(_d) is dtype:
        globals()[_name] = _d

e, pi, inf, nan = 2.718281828459045, 3.141592653589793, float("inf"), float("nan")
newaxis = None

from . import _namespace  # noqa: E402

_namespace.assignable(
    globals(),
    "from_dlpack manual_seed norm pca_lowrank set_default_dtype split stft svd_lowrank unravel_index",
)

__all__ = [
    _name
    for _name in globals()
    if not _name.startswith("_") and _name not in ("annotations", "TYPE_CHECKING")
]

_SUBMODULES = frozenset(
    """
    _dynamo _higher_order_ops _library _subclasses _tensor_str accelerator amp ao autograd backends compiler
    cpu cuda
    distributed distributions export func functional futures fx hub jit library masked monitor mps
    multiprocessing nested nn onnx optim overrides package packaged profiler program quantization
    quasirandom random return_types safetensors serialization signal sparse storage testing tiny
    torch_version types utils version xpu
    """.split()
)
_OPERATOR_MODULES = frozenset(["fft", "linalg", "special"])
# Names that are imported at first use, by the module that defines them.
_ELSEWHERE = {
    _name: _module
    for _module, _names in {
        "autograd.anomaly_mode": "is_anomaly_check_nan_enabled is_anomaly_enabled",
        "compiler": "compile",
        "_checks": """
            _assert_async _check _check_index _check_is_size _check_not_implemented
            _check_tensor_all _check_tensor_all_with _check_type _check_value _check_with
        """,
        "_streams": "Event Stream",
        "_types": """
            AnyType BoolType DeviceObjType DictType FloatType Future IntType JitType ListType
            NoneType NumberType OptionalType OutOfMemoryError ScriptModule StringType SymBool
            SymFloat TensorType TupleType qint32 qint8 quint2x4 quint4x2 quint8
        """,
        "serialization": "save load",
        "_ops": "ops",
        "_classes": "ScriptObject classes",
        "storage": """
            BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage
            DoubleStorage FloatStorage HalfStorage IntStorage LongStorage ShortStorage TypedStorage
            UntypedStorage
        """,
        "overrides": "DisableTorchFunction DisableTorchFunctionSubclass",
        "_torch_names": """
            autocast_decrement_nesting autocast_increment_nesting batch_norm
            binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss
            detach_ fork frobenius_norm get_autocast_gpu_dtype
            get_device get_device_module get_num_interop_threads
            has_lapack has_mkl has_openmp has_spectral hinge_embedding_loss init_num_threads
            is_distributed is_inference is_same_size is_signed is_vulkan_available
            is_warn_always_enabled kl_div layer_norm margin_ranking_loss native_dropout
            norm_except_dim nuclear_norm poisson_nll_loss range
            set_anomaly_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled
            set_autocast_gpu_dtype set_flush_denormal set_num_interop_threads set_warn_always
            sym_float sym_int sym_ite _shape_as_tensor sym_max sym_min sym_not sym_sqrt sym_sum
            thread_safe_generator triplet_margin_loss wait
        """,
        "amp": """
            GradScaler autocast clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype
            is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled set_autocast_cache_enabled
            set_autocast_dtype set_autocast_enabled
        """,
        "_composed": """
            _assert block_diag chain_matmul from_file histogramdd lu max_memory_allocated
            max_memory_reserved memory_allocated memory_reserved memory_summary profile
            ravel reset_peak_memory_stats scalar_tensor set_printoptions
            tensordot tile unique unique_consecutive
        """,
        "_higher_order_ops": "cond",
        "_operator_sets": "Tag",
        "packaged": "load_package",
        "_logging": "set_logs",
        "_qscheme": """
            per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine
            per_tensor_symmetric qscheme
        """,
        "_quantized": """
            _choose_qparams_per_tensor _empty_affine_quantized _empty_per_channel_affine_quantized
            _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor dequantize int_repr
            q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
            quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic
        """,
        "nn._scaled": "_scaled_mm_v2",
        "sparse": "dsmm smm sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor "
        "spmm",
        "_vmap": "vmap",
        "_determinism": """
            are_deterministic_algorithms_enabled get_deterministic_debug_mode get_float32_matmul_precision
            is_deterministic is_deterministic_algorithms_warn_only_enabled set_deterministic
            set_deterministic_debug_mode set_float32_matmul_precision use_deterministic_algorithms
        """,
        "_legacy_types": """
            BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor
            LongTensor ShortTensor set_default_tensor_type
        """,
    }.items()
    for _name in _names.split()
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES or name in _OPERATOR_MODULES:
            import importlib

            return importlib.import_module("." + name, __name__)
        if name in _ELSEWHERE:
            import importlib

            value = getattr(importlib.import_module("." + _ELSEWHERE[name], __name__), name)
            globals()[name] = value
            return value
        if not name.startswith("_") and name in vars(_C.functions):  # defined after the import
            return getattr(_C.functions, name)
        if name.startswith("_") and name in vars(_C.ops):  # PyTorch's private names of gradients
            return getattr(_C.ops, name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_OPERATOR_MODULES, *_ELSEWHERE})


if not TYPE_CHECKING:
    _namespace.complete_vars(globals())


# PyTorch's short names of dtypes; at the end, because some hide builtins of Python.
half, float, double = _C.float16, _C.float32, _C.float64
chalf, cfloat, cdouble = _C.complex32, _C.complex64, _C.complex128
short, int, long = _C.int16, _C.int32, _C.int64
__all__ += [
    "half",
    "float",
    "double",
    "chalf",
    "cfloat",
    "cdouble",
    "short",
    "int",
    "long",
    *sorted(_n for _n in _SUBMODULES if not _n.startswith("_")),
    *_OPERATOR_MODULES,
    *_ELSEWHERE,
]
del _name, _d
