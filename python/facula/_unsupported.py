"""Names of PyTorch that other people's packages import and that Facula does not support.

Under the name torch these names exist, so that a package that may use one of them can be imported; each
raises NotImplementedError when it is called, or, for a class, when it is instantiated. ``import facula``
alone has none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

_PARTS = "models in parts, remote calls and checkpoints of several processes are not supported"
_EAGER = "there is no TorchScript: modules and functions run as the Python that they are"
_CAPTURE = "Facula records programs in a way of its own (torch.compile, torch.fx, torch.export)"
_EXPORT = "models are not exported to this format"
_CUDA = "there is no support for CUDA"
_TENSORS_ALONE = "vmap maps functions of tensors, not of objects that have a vmap of their own"
_PIPES = "loaders leave data pipes as they are: shuffle and shard them by their own methods"
_REMOVED = "PyTorch removed this function; torch.linalg has its successor"

# By the reason: modules, by their names below torch, and the names in them. Missing modules are made.
_NAMES: dict[str, dict[str, str]] = {
    _PARTS: {
        "distributed.rpc": """
            BackendType PyRRef RRef TensorPipeRpcBackendOptions get_worker_info init_rpc remote
            rpc_async rpc_sync shutdown
        """,
        "distributed.rpc.api": "_all_gather _require_initialized",
        "distributed": "_new_process_group_helper",
        "distributed.nn": "RemoteModule",
        "distributed.optim": "DistributedOptimizer",
        "distributed.fsdp": """
            CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy OptimStateKeyType
            ShardedOptimStateDictConfig ShardedStateDictConfig UnshardHandle fully_shard
            register_fsdp_forward_method
        """,
        "distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
        "distributed._composable": "",
        "distributed._composable.replicate": "replicate",
        "distributed.tensor._utils": """
            compute_global_tensor_info compute_local_shape_and_global_offset
            compute_local_tensor_info
        """,
        "distributed.tensor.experimental": """
            context_parallel implicit_replication local_map register_sharding
        """,
        "distributed.tensor.experimental._attention": "context_parallel_unshard set_rotate_method",
        "distributed.tensor.placement_types": "_StridedShard",
        "distributed.checkpoint": """
            FileSystemReader FileSystemWriter async_save load load_state_dict save
            save_state_dict
        """,
        "distributed.checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files",
        "distributed.checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
        "distributed.checkpoint.format_utils": """
            _EmptyStateDictLoadPlanner dcp_to_torch_save torch_save_to_dcp
        """,
        "distributed.checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
        "distributed.checkpoint.metadata": "Metadata TensorStorageMetadata",
        "distributed.checkpoint.optimizer": "load_sharded_optimizer_state_dict",
        "distributed.checkpoint.planner": "LoadPlanner SavePlanner",
        "distributed.checkpoint.state_dict": """
            StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict
            set_model_state_dict set_optimizer_state_dict set_state_dict
        """,
        "distributed.checkpoint.state_dict_loader": "_load_state_dict",
        "distributed.checkpoint.stateful": "Stateful",
        "distributed.algorithms.ddp_comm_hooks": "",
        "distributed.algorithms.model_averaging": "",
        "distributed.elastic.multiprocessing.errors": "ChildFailedError",
        "distributed.launcher": "",
        "distributed.pipelining": """
            Pipe PipelineStage Schedule1F1B ScheduleGPipe SplitPoint pipe_split pipeline
        """,
        "distributed.pipelining.microbatch": "TensorChunkSpec",
        "_C._distributed_rpc": "PyRRef",
        "numa": "",
        "numa.binding": "AffinityMode NumaOptions",
    },
    _EAGER: {
        "": "PyTorchFileReader",
        "jit._recursive": "concrete_type_store",
    },
    _CAPTURE: {
        "_dynamo.exc": "TensorifyScalarRestartAnalysis",
        "_guards": "TracingContext",
        "_subclasses.fake_tensor": "FakeTensor FakeTensorMode",
        "_subclasses.functional_tensor": """
            FunctionalTensor FunctionalTensorMode mb_unwrap_functional_tensor
        """,
        "_subclasses.meta_utils": "MetaConverter",
        "export._trace": "_export",
        "export.decomp_utils": "CustomDecompTable",
        "nn.utils._per_sample_grad": "call_for_per_sample_grads",
    },
    _EXPORT: {
        "onnx.symbolic_helper": "cast_pytorch_to_onnx",
        "onnx.symbolic_opset9": "masked_fill softmax",
        "onnx.symbolic_opset12": "dropout",
    },
    _CUDA: {
        "autograd.profiler": "emit_itt emit_nvtx",
        "cuda": "StreamContext",
        "nn.parallel.comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
        "cuda.profiler": "init profile start stop",
    },
    _TENSORS_ALONE: {
        "_C._functorch": "_add_batch_dim _remove_batch_dim _vmap_decrement_nesting _vmap_increment_nesting",
        "_functorch.vmap": """
            _add_batch_dim _create_batched_inputs _maybe_remove_batch_dim
            _process_batched_inputs _remove_batch_dim _unwrap_batched
        """,
    },
    _PIPES: {
        "utils.data.dataloader": "_sharding_worker_init_fn",
        "utils.data.datapipes.datapipe": """
            _IterDataPipeSerializationWrapper _MapDataPipeSerializationWrapper
        """,
        "utils.data.graph_settings": """
            apply_random_seed apply_sharding apply_shuffle_settings get_all_graph_pipes
        """,
    },
    _REMOVED: {"": "matrix_rank solve symeig"},
}


# Operators of torch.ops.aten that packages name in tables and decorators.
OPERATORS = frozenset(
    """
    _assert_scalar _assert_tensor_metadata _convolution _embedding_bag _grouped_mm _is_all_true
    _local_scalar_dense _pin_memory _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_backward _unsafe_view
    convolution_backward detach_ is_non_overlapping_and_dense lift_fresh mse_loss_backward
    native_batch_norm_backward sigmoid_backward sym_constrain_range_for_size
    """.split()
)


class RefusedOperator:
    """An operator, or an overload of it, that does not exist here: it may be a key, and a call raises."""

    def __init__(self, name: str) -> None:
        self._name = self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"ops.{self._name}: Facula has no operator of this name")

    def __getattr__(self, overload: str) -> RefusedOperator:
        if overload.startswith("_"):  # also before __init__, when a copy is made
            raise AttributeError(f"operator '{self.__dict__.get('_name')}' has no attribute '{overload}'")
        by_overload = self.__dict__[overload] = RefusedOperator(f"{self._name}.{overload}")
        return by_overload

    def __deepcopy__(self, memo: Any) -> RefusedOperator:
        return self

    def name(self) -> str:
        return self._name.replace(".", "::", 1)

    def __repr__(self) -> str:
        return f"<RefusedOperator(op='{self._name}')>"


class _Refusing(type):
    """The type of classes that are not supported: their attributes say so too."""

    _reason: str

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"{cls.__module__}.{cls.__qualname__}.{name}: {cls._reason}")

    def __getitem__(cls, parameters: Any) -> type:
        return cls  # in annotations


def _refused_class(module: str, name: str, reason: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{module}.{name}: {reason}")

    return _Refusing(name, (), {"__module__": module, "__new__": refuse, "_reason": reason})


def _refused_function(module: str, name: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{module}.{name}: {reason}")

    refuse.__module__, refuse.__name__, refuse.__qualname__ = module, name, name
    return refuse


def _by_module() -> dict[str, list[tuple[str, str]]]:
    by_module: dict[str, list[tuple[str, str]]] = {}
    for reason, modules in _NAMES.items():
        for module, names in modules.items():
            by_module.setdefault(module, []).extend((name, reason) for name in names.split())
    return by_module


_BY_MODULE = _by_module()


def modules() -> frozenset[str]:
    """The names of the modules that have names that are not supported, without ``torch.``."""
    return frozenset(_BY_MODULE)


def complete(module: ModuleType, name: str, theirs: str) -> None:
    """Adds the names that are not supported to ``module``; ``name`` is its name without the package's,
    ``theirs`` its name in messages.
    """
    for attribute, reason in _BY_MODULE.get(name, ()):
        make = _refused_class if attribute.lstrip("_")[0].isupper() else _refused_function
        vars(module).setdefault(attribute, make(theirs, attribute, reason))
