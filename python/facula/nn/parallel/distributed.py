from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ... import _C, distributed
from ...distributed._groups import _get_default_group
from ...distributed._reducer import MEGABYTE, BuiltinCommHookType, GradBucket, Reducer
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...distributed.utils import (
    _broadcast_coalesced,
    _sync_module_states,
    _verify_param_shape_across_processes,
)
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]

Tensor = _C.Tensor
_MB_TO_BYTES = MEGABYTE
_DEFAULT_BUCKET_CAP_MB = 25
# The size of buckets if the program sets none. Computation cannot hide the last one; small ones cost little.
_USUAL_BUCKET_MB = 4


@dataclass
class _MixedPrecision:
    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


@dataclass
class _BufferCommHook:
    function: Callable[..., Any]
    state: Any
    location: Any


class _BufferCommHookLocation:
    PRE_FORWARD, POST_FORWARD = "pre", "post"


class _DDPJoinHook(JoinHook):
    """The collectives of one iteration of a DistributedDataParallel, on a rank without inputs."""

    def __init__(self, ddp: DistributedDataParallel, divide_by_initial_world_size: bool) -> None:
        self.ddp, self.by_initial = ddp, divide_by_initial_world_size
        ddp._divide_by_initial_world_size = divide_by_initial_world_size
        super().__init__()

    def main_hook(self) -> None:
        ddp = self.ddp
        ddp._sync_buffers_of_joined()
        if not ddp._any_rank_syncs(joined=True):
            return
        ddp.reducer.divisor = 1  # of zeros
        ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        ddp.reducer.divisor = 0
        root = ddp._common_rank(ddp.process_group.rank(), is_last_joiner)
        _sync_module_states(
            ddp.module, ddp.process_group, src=root, params_and_buffers_to_ignore=ddp.parameters_to_ignore
        )


class DistributedDataParallel(Module, Joinable):
    """Wraps a module as ``.module``: each process computes gradients on its batch, and backward replaces them
    by their mean over all processes.

    All processes start with the parameters and buffers of rank 0. Gradients are reduced in buckets while
    backward runs. Every parameter must take part in each backward, or ``find_unused_parameters`` be true.

    Raises RuntimeError if the module has no parameter that requires a gradient, and if the processes have
    different parameters.

    >>> store = facula.distributed.HashStore()
    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0, store=store)
    >>> nn.parallel.DistributedDataParallel(nn.Linear(2, 3))(facula.ones(1, 2)).shape
    facula.Size([1, 3])
    >>> facula.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: _MixedPrecision | None = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(0)
        if mixed_precision is not None or delay_all_reduce_named_params is not None:
            raise NotImplementedError(
                "DistributedDataParallel: mixed_precision and delay_all_reduce_named_params are not "
                f"supported; use {_C.package_name()}.autocast in forward, and find_unused_parameters"
            )
        self.process_group = _get_default_group() if process_group is None else process_group
        self.device_mesh = device_mesh
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [
            (n, p)
            for n, p in module.named_parameters()
            if p.requires_grad and n not in self.parameters_to_ignore
        ]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that "
                "requires a gradient."
            )
        if device_ids or output_device is not None:
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with modules on "
                "a GPU, but got "
                f"device_ids {device_ids}, output_device {output_device}, and parameters on "
                f"{ {str(p.device) for _, p in named} }."
            )
        self.module, self.dim, self.device_ids, self.output_device = module, dim, None, None
        self.device, self.device_type = named[0][1].device, "cpu"
        self.forward_sync_buffers = (
            broadcast_buffers is not False if forward_sync_buffers is None else forward_sync_buffers
        )
        self.broadcast_buffers = self.forward_sync_buffers
        self.find_unused_parameters, self.gradient_as_bucket_view = (
            find_unused_parameters,
            gradient_as_bucket_view,
        )
        self.static_graph, self.skip_all_reduce_unused_params = False, skip_all_reduce_unused_params
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._divide_by_initial_world_size, self._join_uneven = True, False
        self._error = ""
        self._comm_hooks: list[tuple[Callable[..., Any], Any]] = []
        self.buffer_hook: _BufferCommHook | None = None
        self.mixed_precision = None
        self._bucket_cap = bucket_cap_mb if bucket_cap_mb is not None else _DEFAULT_BUCKET_CAP_MB
        self.bucket_bytes_cap_default = bucket_cap_mb is None
        self.bucket_bytes_cap = int(self._bucket_cap * MEGABYTE)
        if init_sync:
            _verify_param_shape_across_processes(self.process_group, [p for _, p in named])
            _sync_module_states(module, self.process_group, 250 * MEGABYTE, 0, self.parameters_to_ignore)
        caps = [int(c * MEGABYTE) for c in bucket_cap_mb_list] if bucket_cap_mb_list else None
        usual = [MEGABYTE, _USUAL_BUCKET_MB * MEGABYTE]
        self.__dict__["reducer"] = Reducer(
            [p for _, p in named],
            [n for n, _ in named],
            self.process_group,
            caps or (usual if self.bucket_bytes_cap_default else [self.bucket_bytes_cap]),
            find_unused_parameters,
            gradient_as_bucket_view,
            skip_all_reduce_unused_params,
        )
        self._module_parameters = [p for _, p in named]
        self._pass_group_to_batch_norm(module)
        if static_graph:
            self._set_static_graph()

    reducer: Reducer

    def _rejoin(self, group: Any) -> None:
        """Replaces the group by another one. All of its ranks call this method; no values are exchanged."""
        self.process_group = group
        self.reducer.restart(group)

    # ---- forward

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._before_forward()
        output = self.module(*inputs, **kwargs)
        self._after_forward(output)
        return output

    def _before_forward(self) -> None:
        self.reducer.times["forward_compute_time_start"] = time.monotonic_ns()
        grad = _C.is_grad_enabled()
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
            size = self.process_group.size()
            live = int(work.result()[0].item())
            self.reducer.divisor = size if self._divide_by_initial_world_size else live
            self._join_uneven = self._join_uneven or live != size
        if self._join_config.enable:
            self._any_rank_syncs(joined=False)
        if grad and self.require_backward_grad_sync:
            self.reducer.check_finished()
            self.reducer.rebuild()
        if self._syncs_buffers() and not self._buffer_hook_is_after():
            self._sync_buffers()

    def _after_forward(self, output: Any) -> None:
        if self._syncs_buffers() and self._buffer_hook_is_after():
            self._sync_buffers()
        if _C.is_grad_enabled():
            self.reducer.prepare(output, self.require_backward_grad_sync)
            self.require_forward_param_sync = self.require_backward_grad_sync
        else:
            self.require_forward_param_sync = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward and backward passes within the block accumulate without being reduced."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ---- buffers

    def _buffers_to_sync(self) -> dict[str, Tensor]:
        return {n: b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore}

    def _syncs_buffers(self) -> bool:
        return self.require_forward_param_sync and self.forward_sync_buffers and bool(self._buffers_to_sync())

    will_sync_module_buffers = _syncs_buffers

    def _buffer_hook_is_after(self) -> bool:
        return (
            self.buffer_hook is not None and self.buffer_hook.location == _BufferCommHookLocation.POST_FORWARD
        )

    def _sync_buffers(self) -> None:
        """Replaces buffers by those of rank 0, or with uneven inputs of a rank that still has inputs."""
        root = 0
        if self._join_config.enable:
            root = self._common_rank(self.process_group.rank(), True)
        buffers = self._buffers_to_sync()
        if self.buffer_hook is not None:
            futures = self.buffer_hook.function(self.buffer_hook.state, buffers)
            for future in futures or ():
                future.wait()
        else:
            _broadcast_coalesced(self.process_group, list(buffers.values()), 250 * MEGABYTE, root)

    def _sync_buffers_of_joined(self) -> None:
        if self._syncs_buffers():
            root = self._common_rank(self.process_group.rank(), False)
            _broadcast_coalesced(
                self.process_group, list(self._buffers_to_sync().values()), 250 * MEGABYTE, root
            )

    def _common_rank(self, rank: int, eligible: bool) -> int:
        """Returns the highest of the eligible ranks."""
        highest = _C.tensor([rank if eligible else -1])
        distributed.all_reduce(highest, distributed.ReduceOp.MAX, self.process_group)
        if (root := int(highest.item())) < 0:
            raise ValueError("BUG! Expected rank_cond to be true for at least one process.")
        return root

    def _register_buffer_comm_hook(
        self,
        state: Any,
        hook: Callable[..., Any],
        comm_hook_location: Any = _BufferCommHookLocation.POST_FORWARD,
    ) -> None:
        """Registers ``hook(state, buffers)``, which replaces the broadcast of buffers and returns futures."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.buffer_hook = _BufferCommHook(hook, state, comm_hook_location)

    # ---- uneven inputs

    def _any_rank_syncs(self, joined: bool) -> bool:
        flag = _C.tensor([0 if joined or not self.require_backward_grad_sync else 1])
        distributed.all_reduce(flag, group=self.process_group)
        return bool(flag.item())

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context manager for loops whose number of iterations differs between processes."""
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # ---- communication hooks

    def register_comm_hook(self, state: Any, hook: Callable[..., Any]) -> None:
        """Registers ``hook(state, bucket)``, which reduces a bucket of gradients and returns a Future of the
        resulting tensor. The hook divides by the number of processes itself.
        """
        self._check_comm_hook(hook)
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._comm_hooks.append((hook, state))
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _check_comm_hook(self, hook: Any) -> None:
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        parameters = inspect.signature(hook).parameters
        annotation = parameters["bucket"].annotation if "bucket" in parameters else inspect.Parameter.empty
        names = (
            inspect.Parameter.empty,
            GradBucket,
            "GradBucket",
            "dist.GradBucket",
            "distributed.GradBucket",
        )
        if annotation not in names:
            raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
        returned = inspect.signature(hook).return_annotation
        text = str(returned)
        if returned is not inspect.Signature.empty and "Future" not in text and not text.endswith("Any"):
            raise ValueError(
                "Communication hook: return annotation should be torch.futures.Future[torch.Tensor] or "
                "torch._C.Future."
            )

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        from ...distributed.algorithms.ddp_comm_hooks import default_hooks

        half = comm_hook_type == BuiltinCommHookType.FP16_COMPRESS
        hook = default_hooks.fp16_compress_hook if half else default_hooks.allreduce_hook
        self.register_comm_hook(self.process_group, hook)

    # ---- settings

    def _set_static_graph(self) -> None:
        """Declares that each iteration uses the same parameters in the same way as the first one."""
        if self.static_graph:
            warnings.warn("You've set static_graph to be True, no need to set it again.", stacklevel=2)
            return
        if self.reducer.iterations:
            self._error = "Static graph should be called before training loop starts"
            raise RuntimeError(f"{self._error}: call _set_static_graph() before the first iteration.")
        self.static_graph = self.reducer.static = True
        if self.find_unused_parameters:
            warnings.warn(
                "You passed find_unused_parameters=true to DistributedDataParallel, `_set_static_graph` "
                "will detect unused "
                "parameters automatically, so you do not need to set find_unused_parameters=true, just be "
                "sure these "
                "unused parameters will not change during training loop while calling `_set_static_graph`.",
                stacklevel=2,
            )

    def _pass_group_to_batch_norm(self, module: Module) -> None:
        """Raises for a SyncBatchNorm that this device does not support; there is none on the CPU."""

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Any
    ) -> None:
        """Excludes parameters and buffers of these names; called before the module is wrapped."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore
        ignored = set(params_and_buffers_to_ignore)
        for name, p in [*module.named_parameters(), *module.named_buffers()]:
            if name in ignored:
                p._ddp_ignored = True

    @staticmethod
    def _get_data_parallel_params(module: Module, named_params: bool = False) -> Iterator[Any]:
        for name, p in module.named_parameters():
            if not getattr(p, "_ddp_ignored", False):
                yield (name, p) if named_params else p

    def _remove_autograd_hooks(self) -> None:
        self.reducer.remove_hooks()

    def _check_reducer_finalized(self) -> None:
        self.reducer.check_finished()

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("process_group", "reducer", "device_mesh", "_module_parameters"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group, self.device_mesh = _get_default_group(), None
        named = [
            (n, p)
            for n, p in self.module.named_parameters()
            if p.requires_grad and n not in self.parameters_to_ignore
        ]
        self._module_parameters = [p for _, p in named]
        usual = [MEGABYTE, _USUAL_BUCKET_MB * MEGABYTE]
        self.__dict__["reducer"] = Reducer(
            [p for _, p in named],
            [n for n, _ in named],
            self.process_group,
            usual if self.bucket_bytes_cap_default else [self.bucket_bytes_cap],
            self.find_unused_parameters,
            self.gradient_as_bucket_view,
        )
        self.reducer.static = self.static_graph

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Times are taken in every iteration; only the argument is checked."""
        if sample_rate < 1:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Returns the settings and figures that PyTorch reports of a wrapped module."""
        reducer, params = self.reducer, self._module_parameters
        sizes = ", ".join(str(b.flat.numel() * b.flat.itemsize) for b in reducer.buckets)
        names = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}
        dtypes = sorted({names.get(n := str(p.dtype).rpartition(".")[2], n) for p in params})
        data = {
            "world_size": self.process_group.size(),
            "rank": self.process_group.rank(),
            "module_name": type(self.module).__name__,
            "device_ids": "",
            "output_device": -1,
            "broadcast_buffers": int(self.broadcast_buffers),
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "find_unused_parameters": int(self.find_unused_parameters),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "backend_name": str(self.process_group._backend),
            "iteration": max(0, reducer.iterations - 1),  # counted from 0, as in PyTorch
            "has_error": int(bool(self._error)),
            "error": self._error,
            "dtypes": ", ".join(dtypes),
            "total_parameter_size_bytes": sum(p.numel() * p.itemsize for p in params),
            "num_parameter_tensors": len(params),
            "bucket_sizes": sizes,
            "has_rebuilt_buckets": int(reducer.rebuilt),
            "rebuilt_bucket_sizes": sizes if reducer.rebuilt else "",
            "join_uneven_inputs": int(self._join_uneven),
            "static_graph": int(self.static_graph),
            "comm_hook": getattr(reducer.hook, "__qualname__", ""),
            "unused_parameter_size": sum(params[i].numel() * params[i].itemsize for i in reducer.unused),
            "prev_iteration_grad_ready_order_indices": ", ".join(map(str, reducer.order)),
            "rebuilt_per_bucket_param_indices": ", ".join(
                " ".join(map(str, b.indices)) for b in reducer.buckets
            ),
        }
        for variable in ("MASTER_PORT", "MASTER_ADDR", "TORCH_DISTRIBUTED_DEBUG", "GLOO_SOCKET_IFNAME"):
            data[variable.lower()] = os.environ.get(variable, "N/A")
        return data | self._figures()

    def _figures(self) -> dict[str, int]:
        """Returns the times of the last iteration in nanoseconds, under PyTorch's names."""
        times = self.reducer.times
        spans = {
            "forward_compute_time": ("forward_compute_time_start", "forward_compute_time_end"),
            "backward_compute_time": ("backward_compute_time_start", "backward_compute_time_end"),
            "backward_comm_time": ("backward_comm_time_start", "backward_comm_time_end"),
            "backward_compute_comm_overlap_time": ("backward_comm_time_start", "backward_compute_time_end"),
        }
        figures = {}
        for name, (begin, end) in spans.items():
            if begin in times and end in times:
                figures[name] = figures[f"avg_{name}"] = max(1, times[end] - times[begin])
        return times | figures


def _dump_DDP_relevant_env_vars() -> None:
    """Prints the environment variables that a job depends on."""
    names = """
        RANK LOCAL_RANK WORLD_SIZE MASTER_PORT MASTER_ADDR GLOO_SOCKET_IFNAME GLOO_DEVICE_TRANSPORT
        NCCL_SOCKET_IFNAME NCCL_DEBUG NCCL_TOPO_DUMP_FILE TORCH_NCCL_BLOCKING_WAIT
        TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_DISTRIBUTED_DEBUG
    """
    for name in names.split():
        print(f"env:{name}={os.environ.get(name, 'N/A')}")
