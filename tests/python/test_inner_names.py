"""Names that are not of PyTorch's public interface, but which published programs import from it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import facula
from facula import distributed as dist
from facula import nn

NAMES = """
torch._utils: ExceptionWrapper classproperty _flatten_dense_tensors _get_all_device_indices _get_device_index
torch._utils: _take_tensors _unflatten_dense_tensors
torch.nn.functional: _Reduction
torch.nn._reduction: get_enum legacy_get_string
torch.nn.init: _no_grad_normal_ _no_grad_trunc_normal_
torch.nn.parallel._functions: _get_stream
torch.nn.parallel.parallel_apply: parallel_apply
torch.nn.parallel.replicate: replicate
torch.optim.optimizer: ParamsT _default_to_fused_or_foreach _get_value _use_grad_for_differentiable required
torch.optim._multi_tensor: AdamW
torch.utils.data._utils: MP_STATUS_CHECK_INTERVAL
torch.utils.data._utils.collate: default_collate np_str_obj_array_pattern
torch.utils.data.dataloader: _DatasetKind _BaseDataLoaderIter
torch.autograd.function: InplaceFunction once_differentiable
torch.autograd.grad_mode: _DecoratorContextManager
torch.amp.grad_scaler: GradScaler OptState
torch.jit._script: script
torch._jit_internal: boolean_dispatch _copy_to_script_wrapper BroadcastingList2 Final
torch._dynamo.eval_frame: OptimizedModule
torch._inductor: config
torch._vmap_internals: vmap
torch._C: _get_tracing_state
torch.onnx.utils: export
torch.onnx.symbolic_helper: parse_args
torch.utils.cpp_extension: CUDA_HOME
torch.utils._triton: has_triton
torch.multiprocessing.reductions: ForkingPickler reduce_tensor
torch.multiprocessing.pool: Pool
torch.serialization: DEFAULT_PROTOCOL _is_zipfile
torch.backends.mha: get_fastpath_enabled
torch.mtia: is_available
torch.accelerator: current_device_index empty_cache
torch.distributed.constants: default_pg_timeout
torch.distributed.nn: all_reduce
torch.distributed.nn.functional: all_gather
torch.distributed.fsdp: MixedPrecision ShardingStrategy StateDictType
torch.distributed.fsdp.wrap: transformer_auto_wrap_policy
torch.distributed.algorithms._checkpoint.checkpoint_wrapper: apply_activation_checkpointing
torch.distributed.elastic.multiprocessing.errors: record
torch.export: Dim export
torch.export.exported_program: ExportedProgram
"""


def test_they_are_there_behind_the_alias():
    split = (line.split(": ") for line in NAMES.strip().split("\n"))
    lines = [f"from {module} import {names.replace(' ', ', ')}" for module, names in split]
    lines += ["import torch", "assert callable(torch.nn.parallel.parallel_apply)", "print('all')"]
    command = [sys.executable, "-m", "facula.torch", "-c", "\n".join(lines)]
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "all\n", done.stderr


def test_tensors_in_one_and_in_lists():
    from facula._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

    tensors = [facula.arange(6.0).view(2, 3), facula.ones(()), facula.zeros(0, 2)]
    flat = _flatten_dense_tensors(tensors)
    assert flat.shape == (7,) and _flatten_dense_tensors([]).shape == (0,)
    for a, b in zip(tensors, _unflatten_dense_tensors(flat, tensors)):
        assert facula.equal(a, b)
    mixed = [facula.ones(2), facula.ones(2, dtype=facula.float64), facula.ones(3), facula.ones(9)]
    chunks = [[t.numel() for t in chunk] for chunk in _take_tensors(mixed, 20)]
    assert chunks == [[2, 3], [9], [2]]


def test_a_workers_exception_is_raised_again():
    from facula._utils import ExceptionWrapper

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    for error, kind in (
        (ValueError("bad"), ValueError),
        (KeyError("k"), KeyError),
        (Odd(1, 2), RuntimeError),
    ):
        try:
            raise error
        except Exception:
            kept = ExceptionWrapper(where="in worker 3")
        with pytest.raises(kind, match="in worker 3"):
            kept.reraise()


def test_reductions_as_numbers():
    from facula.nn import _reduction as r

    assert [r.get_enum(s) for s in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.raises(ValueError, match="not a valid value"):
        r.get_enum("max")
    said = {(None, None): "mean", (False, None): "sum", (True, False): "none", (False, True): "sum"}
    assert all(r.legacy_get_string(*flags, emit_warning=False) == s for flags, s in said.items())
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert r.legacy_get_enum(False, True) == 2


def test_collectives_with_gradients():
    import facula.distributed.nn as collective

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = facula.arange(3.0, requires_grad=True)
        (gathered,) = collective.all_gather(x)
        total = collective.all_reduce(gathered * 2) + collective.broadcast(x, 0) + collective.scatter([x], 0)
        total.square().sum().backward()
        assert x.grad.tolist() == [0, 32, 64]
        with pytest.raises(RuntimeError, match="rank 1 of a world of 1"):
            collective.broadcast(x, 1)
    finally:
        dist.destroy_process_group()


def test_checkpoints_around_parts_of_a_module():
    from facula.distributed.algorithms._checkpoint import checkpoint_wrapper as cw
    from facula.distributed.fsdp import lambda_auto_wrap_policy, size_based_auto_wrap_policy

    facula.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    wrapped = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    wrapped.load_state_dict(plain.state_dict())
    cw.apply_activation_checkpointing(wrapped, check_fn=lambda m: isinstance(m, nn.Linear))
    assert isinstance(wrapped[0], cw.CheckpointWrapper) and wrapped[0].in_features == 3
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in wrapped.named_parameters()][0].endswith("weight")
    wrapped.load_state_dict({k: v * 2 for k, v in plain.state_dict().items()})
    plain.load_state_dict(wrapped.state_dict())
    x = facula.ones(2, 3)
    for m in (plain, wrapped):
        m(x).square().sum().backward()
    for a, b in zip(plain.parameters(), wrapped.parameters()):
        assert facula.equal(a.grad, b.grad)
    assert lambda_auto_wrap_policy(plain, False, 0, lambda m: m is plain)
    chosen = partial(size_based_auto_wrap_policy, min_num_params=10)
    assert (
        chosen(plain[0], False, 16) and not chosen(nn.ModuleList(), False, 16) and not chosen(plain, True, 3)
    )


def test_an_optimizer_of_ones_own_by_pytorchs_helpers():
    from facula.optim.optimizer import Optimizer, _get_value, _use_grad_for_differentiable

    class Plain(Optimizer):
        @_use_grad_for_differentiable
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-_get_value(group["lr"]))

    w = facula.ones(2, requires_grad=True)
    optimizer = Plain([w], {"lr": facula.tensor(0.5), "differentiable": False})
    (w * 2).sum().backward()
    optimizer.step()
    assert w.tolist() == [0, 0] and w.is_leaf
