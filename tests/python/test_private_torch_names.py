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
torch: _subclasses
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
torch: DeviceObjType Future OutOfMemoryError ScriptModule SymBool SymFloat TensorType
torch: qint8 quint8 _assert_async
torch.cuda: OutOfMemoryError _initialized _lazy_call
torch.cuda.amp.common: amp_definitely_not_available
torch._C: _TensorMeta DispatchKey _are_functorch_transforms_active _get_default_device
torch._C._functorch: get_unwrapped is_batchedtensor
torch._C._nn: _parse_to
torch._dynamo: assume_constant_result
torch._dynamo._trace_wrapped_higher_order_op: TransformGetItemToIndex
torch._functorch.vmap: _broadcast_to_and_flatten _get_name tree_flatten tree_unflatten
torch._ops: HigherOrderOperator
torch._subclasses.fake_tensor: is_fake unset_fake_temporarily
torch._tensor_str: _tensor_str
torch._utils: _element_size _get_device_module
torch.autograd: _is_checkpoint_valid
torch.distributed.distributed_c10d: _get_global_rank
torch.distributed.tensor.device_mesh: DeviceMesh
torch.distributions.kl: _KL_REGISTRY
torch.distributions.transforms: _clipped_sigmoid
torch.fx.experimental.proxy_tensor: get_proxy_mode
torch.jit: _overload
torch.nn.modules.module: _EXTRA_STATE_KEY_SUFFIX _global_parameter_registration_hooks
torch.nn.utils._named_member_accessor: NamedMemberAccessor swap_tensor
torch.nn.utils.stateless: _reparametrize_module
torch.optim.optimizer: _get_capturable_supported_devices
torch.serialization: MAP_LOCATION
torch.utils._contextlib: _DecoratorContextManager
torch.utils._foreach_utils: _group_tensors_by_device_and_dtype
torch.utils._pytree: Context PyTree _dict_flatten _get_node_type _list_flatten_with_keys _namedtuple_unflatten
torch.utils.data._utils: HAS_NUMPY pin_memory signal_handling
torch.utils.data._utils.collate: collate collate_tensor_fn default_collate_fn_map
torch.utils.data._utils.pin_memory: pin_memory
torch.utils.data._utils.worker: ManagerWatchdog _IterableDatasetStopIteration _ResumeIteration _generate_state
torch.utils.data._utils.worker: _worker_info
torch.utils.data.dataloader: _InfiniteConstantSampler _collate_fn_t _worker_init_fn_t get_worker_info
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
        with pytest.raises(RuntimeError, match=r"rank 1 is not in \[0, 1\)"):
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


def test_a_module_has_other_tensors_within_a_block_and_its_own_after_it():
    from facula.nn.utils.stateless import _reparametrize_module

    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.tied = module[0].weight
    before = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    given = {"0.weight": facula.eye(2), "1.running_mean": facula.full((2,), 3.0)}
    with _reparametrize_module(module, given):
        assert module[0].weight is given["0.weight"] and module.tied is before["0.weight"]
        written = module[1]._buffers["running_mean"] = facula.ones(2)
    after = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    assert all(after[name] is before[name] for name in before)
    assert given["1.running_mean"] is written  # what the block assigned
    with _reparametrize_module(module, {"0.weight": facula.eye(2)}, tie_weights=True):
        assert module.tied is module[0].weight
    with pytest.raises(RuntimeError, match=r"(?s)Unexpected key\(s\): 'x'.*Missing key\(s\): '0.bias'"):
        with _reparametrize_module(module, {"x": facula.ones(1)}, strict=True):
            pass
    with pytest.raises(ZeroDivisionError), _reparametrize_module(module, {"0.weight": facula.eye(2)}):
        raise ZeroDivisionError
    assert module[0].weight is before["0.weight"]


def test_member_accessors_replace_all_tensors_or_none():
    from facula.nn.utils._named_member_accessor import NamedMemberAccessor

    module = nn.Linear(2, 2)
    weight, accessor = module.weight, NamedMemberAccessor(module)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 'other'"):
        accessor.swap_tensors_dict({"weight": facula.eye(2), "other": facula.ones(1)})
    assert module.weight is weight and not hasattr(module, "other")
    replaced, missing = accessor.swap_tensors_dict({"weight": facula.eye(2)})
    assert (
        replaced["weight"] is weight
        and missing == []
        and accessor.get_tensor("weight").tolist() == [[1, 0], [0, 1]]
    )
    assert accessor.check_keys(["weight", "x"]) == (["bias"], ["x"])


def test_tensors_are_grouped_by_device_and_dtype_with_the_lists_beside_them():
    from facula.utils._foreach_utils import _group_tensors_by_device_and_dtype

    a, b, c = facula.ones(1), facula.ones(2, dtype=facula.float64), facula.ones(3)
    groups = _group_tensors_by_device_and_dtype([[a, b, c], [c, None, a]], with_indices=True)
    assert list(groups) == [(a.device, facula.float32), (a.device, facula.float64)]
    (first, indices), (second, others) = groups.values()
    assert first[0] == [a, c] and first[1][0] is c and first[1][1] is a and indices == [0, 2]
    assert second == [[b], [None]] and others == [1]
    assert facula.optim.Optimizer._group_tensors_by_device_and_dtype([[a]]) == {
        (a.device, a.dtype): ([[a]], [])
    }
    for wrong in ([], [[a], [a, c]], [[None]]):
        with pytest.raises(RuntimeError, match="_group_tensors_by_device_and_dtype"):
            _group_tensors_by_device_and_dtype(wrong)


def test_steps_that_are_assigned_later_get_hooks():
    class Other(facula.optim.Optimizer):
        pass

    calls = []
    Other.step = lambda self, closure=None: calls.append("step")
    optimizer = Other([facula.ones(1, requires_grad=True)], {})
    optimizer._patch_step_function()
    optimizer._patch_step_function()  # a second time changes nothing
    optimizer.register_step_post_hook(lambda *_: calls.append("hook"))
    optimizer.step()
    assert calls == ["step", "hook"]


def test_arguments_of_to_are_taken_apart():
    from facula.nn.modules.module import _parse_to

    cpu = facula.device("cpu")
    assert _parse_to("cpu", facula.float64, True) == (cpu, facula.float64, True, None)
    assert _parse_to(facula.zeros(1, dtype=facula.float16)) == (cpu, facula.float16, False, None)
    assert _parse_to(dtype=facula.float64, non_blocking=True) == (None, facula.float64, True, None)
    assert _parse_to(memory_format=facula.channels_last)[3] is facula.channels_last
    with pytest.raises(TypeError, match="invalid combination"):
        _parse_to(color="red")


def test_assert_async_raises_at_once_on_the_cpu():
    facula._assert_async(facula.tensor(True))
    facula._assert_async(facula.tensor([2.0]), "never")
    with pytest.raises(RuntimeError, match="single nonzero value, but got zero"):
        facula._assert_async(facula.tensor(0))
    with pytest.raises(RuntimeError, match="^mine$"):
        facula._assert_async(facula.tensor(False), "mine")
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        facula._assert_async(facula.ones(2))


def test_higher_order_operators_call_what_is_registered():
    from facula._ops import HigherOrderOperator

    class Twice(HigherOrderOperator):
        def __init__(self):
            super().__init__("twice")

    twice = Twice()
    with pytest.raises(
        NotImplementedError, match="twice: there is no function for the CPU; registered are none"
    ):
        twice(abs, 1)

    @twice.py_impl("CompositeExplicitAutograd")
    def plain(f, x):
        return f(f(x))

    assert twice(lambda x: x + 1, facula.ones(1)).item() == 3

    @twice.py_impl("Autograd")
    def tracked(f, x):
        return "tracked"

    assert twice(lambda x: x + 1, facula.ones(1, requires_grad=True)) == "tracked"
    assert twice(lambda x: x + 1, facula.ones(1)).item() == 3
    with pytest.raises(RuntimeError, match="override"):
        twice.py_impl("Autograd")(tracked)


def test_decorating_context_managers_run_each_call_in_a_clone():
    from facula.utils._contextlib import _DecoratorContextManager

    class Level(_DecoratorContextManager):
        depth = 0

        def __init__(self, by):
            self.by = by

        def __enter__(self):
            Level.depth += self.by

        def __exit__(self, *_):
            Level.depth -= self.by

        def clone(self):
            return Level(self.by)

    @Level(2)
    def recursive(n):
        return [Level.depth, *(recursive(n - 1) if n else [])]

    @Level(3)
    def generator():
        yield Level.depth

    assert recursive(2) == [2, 4, 6] and Level.depth == 0
    assert list(generator()) == [3] and Level.depth == 0


def test_indexing_with_a_tensor_of_a_batch_gathers_in_the_mode_for_it():
    from facula._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    values, index = facula.arange(12.0).view(3, 4), facula.tensor([2, 0, 1])
    with TransformGetItemToIndex():
        found = facula.vmap(lambda i: values[i])(index)
        one = facula.vmap(lambda i, j: values[i, j])(index, index)
    assert facula.equal(found, values[index]) and facula.equal(one, values[index, index])


def test_text_of_elements_has_no_frame():
    from facula._tensor_str import _tensor_str

    assert _tensor_str(facula.tensor([1.0, 2.5]), 0) == "[1.0000, 2.5000]"
    assert _tensor_str(facula.tensor(3, dtype=facula.int32), 0) == "3"
    assert _tensor_str(facula.ones(2, 2, requires_grad=True), 2) == "[[1., 1.],\n   [1., 1.]]"


def test_tensors_of_a_batch_are_known():
    from facula._functorch.vmap import get_unwrapped, is_batchedtensor

    seen = []
    facula.vmap(lambda x: seen.append((is_batchedtensor(x), get_unwrapped(x).shape)) or x)(facula.ones(3, 2))
    assert seen == [(True, (3, 2))] and not is_batchedtensor(facula.ones(2))


def test_containers_are_taken_apart_by_the_functions_of_the_table():
    from collections import OrderedDict, defaultdict, deque, namedtuple

    from facula.utils import _pytree as tree

    pair = namedtuple("pair", "a b")
    examples = {
        tuple: ((1, 2), None),
        list: ([1, 2], None),
        dict: ({"a": 1, "b": 2}, ["a", "b"]),
        namedtuple: (pair(1, 2), pair),
        OrderedDict: (OrderedDict(a=1, b=2), ["a", "b"]),
        defaultdict: (defaultdict(int, a=1, b=2), [int, ["a", "b"]]),
        deque: (deque([1, 2], maxlen=3), 3),
    }
    assert list(tree.SUPPORTED_NODES)[:7] == list(examples) and set(examples) == tree.BUILTIN_TYPES
    for kind, (container, context) in examples.items():
        node = tree.SUPPORTED_NODES[kind]
        assert tree._get_node_type(container) is kind
        assert node.flatten_fn(container) == ([1, 2], context)
        again = node.unflatten_fn([3, 4], context)
        assert type(again) is type(container) and node.flatten_fn(again) == ([3, 4], context)
        keyed, same = node.flatten_with_keys_fn(container)
        assert same == context and [key.get(container) for key, _ in keyed] == [1, 2]
        assert [value for _, value in keyed] == [1, 2]
        assert tree.tree_map(lambda x: -x, container) == node.unflatten_fn([-1, -2], context)
    # A Size is a container, too, whose leaves need not remain numbers.
    assert tree.tree_map(str, facula.Size([3, 4])) == ("3", "4") and tree.tree_leaves(facula.Size([])) == []
    assert tree._get_node_type(3) is int and tree._dict_flatten({"x": 1}) == ([1], ["x"])
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(dict, None, None)
    with pytest.raises(ValueError):
        tree._dict_unflatten([1, 2], ["a"])


def test_tensors_have_an_address_that_tells_handles_from_copies():
    layer = nn.Linear(2, 2)
    assert layer.weight._cdata == dict(layer.named_parameters())["weight"]._cdata
    assert layer.weight._cdata != layer.weight.detach()._cdata


def test_batches_are_made_by_the_function_of_a_type():
    from facula.utils.data._utils.collate import collate, default_collate, default_collate_fn_map

    class Point:
        def __init__(self, x):
            self.x = x

    def points(batch, *, collate_fn_map=None):
        return Point([p.x for p in batch])

    assert default_collate([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])["b"] == ["x", "y"]
    samples = [(Point(1), 2.0), (Point(3), 4.0)]
    with pytest.raises(TypeError, match="Point"):
        default_collate(samples)
    first, second = collate(samples, collate_fn_map={**default_collate_fn_map, Point: points})
    assert first.x == [1, 3] and second.tolist() == [2, 4] and second.dtype == facula.float64
    default_collate_fn_map[Point] = points
    try:
        assert default_collate(samples)[0].x == [1, 3]
    finally:
        del default_collate_fn_map[Point]
    with pytest.raises(TypeError):
        collate([1, 2])  # no function


def test_loaders_make_their_passes_by_a_method_that_subclasses_override():
    from facula.utils.data import DataLoader, IterableDataset, TensorDataset
    from facula.utils.data.dataloader import _DatasetKind, _InfiniteConstantSampler

    class Backwards(DataLoader):
        def _get_iterator(self):
            return iter(list(super()._get_iterator())[::-1])

    loader = Backwards(TensorDataset(facula.arange(4)), batch_size=2)
    assert [b[0].tolist() for b in loader] == [[2, 3], [0, 1]]
    assert loader._auto_collation and not DataLoader([1], batch_size=None)._auto_collation
    mapped = _DatasetKind.create_fetcher(_DatasetKind.Map, [5, 6, 7], True, list, False)
    assert mapped.fetch([2, 0]) == [7, 5]

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    stream = _DatasetKind.create_fetcher(_DatasetKind.Iterable, Stream(), True, list, False)
    assert [stream.fetch([0, 0]), stream.fetch([0, 0])] == [[0, 1], [2]]
    with pytest.raises(StopIteration):
        stream.fetch([0])
    dropping = _DatasetKind.create_fetcher(_DatasetKind.Iterable, Stream(), True, list, True)
    assert dropping.fetch([0, 0]) == [0, 1]
    with pytest.raises(StopIteration):
        dropping.fetch([0, 0])
    assert [x for x, _ in zip(_InfiniteConstantSampler(), range(2))] == [None, None]


def test_batches_are_pinned_element_by_element():
    from collections import namedtuple

    from facula.utils.data._utils.pin_memory import pin_memory

    class Pinned:
        def pin_memory(self):
            return "pinned"

    pair = namedtuple("pair", "a b")
    batch = {"a": [Pinned(), 1], "b": pair("x", (Pinned(),)), "c": range(2)}
    assert pin_memory(batch) == {"a": ["pinned", 1], "b": pair("x", ("pinned",)), "c": [0, 1]}


def test_seeds_of_numpy_in_workers_are_those_of_pytorch():
    from facula.utils.data._utils.worker import _generate_state

    # As PyTorch 2.13 gives them.
    assert _generate_state(0, 0) == [2968811710, 3677149159, 745650761, 2884920346]
    assert _generate_state(12345678901234, 3) == [2677634501, 810098766, 226270600, 4115140591]
    assert _generate_state(2**63 - 1, 7) == [3706660862, 1642455348, 3333652763, 3068748488]


def test_the_graph_of_a_networks_calls_has_torchscripts_operators():
    from facula._trace_graph import tracing_state

    network = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 5),
        nn.LayerNorm(5),
    ).eval()

    def enter(module, inputs):
        tracing_state().push_scope("first")
        assert facula.jit.is_tracing()

    network[0].register_forward_pre_hook(enter)
    network[0].register_forward_hook(lambda *a: tracing_state().pop_scope())
    graph, result = facula.jit._get_trace_graph(network, (facula.ones(1, 3, 8, 8),))
    assert result.shape == (1, 5) and tracing_state() is None and not facula.jit.is_tracing()
    nodes = [n for n in graph.nodes() if n.kind().startswith("aten::") and n.kind() != "aten::dim"]
    sizes = [[v.type().sizes() for v in n.inputs() if v.isCompleteTensor()] for n in nodes]
    # Those of PyTorch's graph.
    assert [(n.kind(), n.inputsSize()) for n in nodes] == [
        ("aten::_convolution", 13),
        ("aten::batch_norm", 8),  # 9 there, with cudnn_enabled
        ("aten::relu", 1),
        ("aten::max_pool2d", 6),
        ("aten::flatten", 3),
        ("aten::linear", 3),
        ("aten::layer_norm", 5),  # 6 there
    ]
    assert sizes == [
        [[1, 3, 8, 8], [8, 3, 3, 3], [8]],
        [[1, 8, 6, 6], [8], [8], [8], [8]],
        [[1, 8, 6, 6]],
        [[1, 8, 6, 6]],
        [[1, 8, 3, 3]],
        [[1, 72], [5, 72], [5]],
        [[1, 5], [5], [5]],
    ]
    batch_norm = list(nodes[1].inputs())
    assert batch_norm[5].toIValue() is False and batch_norm[1].debugName() != batch_norm[3].debugName()
    assert list(nodes[0].inputs())[6].toIValue() is False and nodes[0].scopeName() == "first"
    assert nodes[2].scopeName() == "" and nodes[5].output() is list(nodes[6].inputs())[0]
    assert [v.type().sizes() for v in graph.outputs()] == [[1, 5]] and "aten::linear" in str(graph)


def test_a_tensor_has_its_gradient_under_its_private_name_too():
    p = nn.Parameter(facula.ones(2))
    assert p._grad is None
    (p * 3).sum().backward()
    assert p._grad is p.grad and p._grad.tolist() == [3.0, 3.0]
    p._grad = facula.zeros(2)
    assert p.grad.tolist() == [0.0, 0.0]
    p._grad = None
    assert p.grad is None
