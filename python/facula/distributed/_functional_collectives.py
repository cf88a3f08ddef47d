"""Collectives that return new tensors, as operators: ``facula.ops._c10d_functional.all_reduce``.

Programs hold these operators and keep their order, since they communicate. Each returns when its result is
there, so ``wait_tensor`` has nothing to wait for. Their gradients are collectives too.

>>> from facula.distributed import _functional_collectives as collectives
>>> store = facula.distributed.HashStore()
>>> facula.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
>>> collectives.all_reduce(facula.ones(2), "sum", facula.distributed.group.WORLD)
tensor([1., 1.])
>>> facula.distributed.destroy_process_group()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C, library
from ._constants import ReduceOp
from ._groups import _get_process_group_name, _resolve, _resolve_process_group, new_group
from ._process_group import ProcessGroup, _Options

__all__ = [
    "AsyncCollectiveTensor",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "permute_tensor",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "wait_tensor",
]

Tensor = _C.Tensor
_empty = _C.functions.empty


class AsyncCollectiveTensor:
    """PyTorch's class of results that have to be waited for. Results here are complete: none is of it."""


# ---- the operators


def _options(name: str) -> _Options:
    if name.upper() not in ReduceOp.RedOpType.__members__:
        raise RuntimeError(f"unknown reduction {name!r}: one of sum, avg, product, min, max, band, bor, bxor")
    return _Options(reduceOp=ReduceOp.RedOpType[name.upper()])


def _first_dimension(input: Tensor, rows: int) -> list[int]:
    return [rows, *input.shape[1:]]


def _new(input: Tensor, rows: int) -> Tensor:
    return _empty(_first_dimension(input, rows), dtype=input.dtype, device=input.device)


def _rows(input: Tensor, group_size: int) -> int:
    rows = input.shape[0] if input.dim() else 1
    if rows % group_size:
        raise RuntimeError(
            f"reduce_scatter_tensor: {rows} rows do not divide into the {group_size} ranks of the group"
        )
    return rows // group_size


def _like(input: Tensor, *_: Any) -> Tensor:
    return _C.functions.empty_like(input)


def _run_all_reduce(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    result = input.clone(memory_format=_C.contiguous_format)
    _resolve_process_group(group_name).allreduce([result], _options(reduce_op)).wait()
    return result


def _run_broadcast(input: Tensor, src: int, group_name: str) -> Tensor:
    result = input.clone(memory_format=_C.contiguous_format)
    _resolve_process_group(group_name).broadcast([result], _Options(rootRank=src)).wait()
    return result


def _gathered(input: Tensor, group_size: int, group_name: str) -> Tensor:
    return _new(input, (input.shape[0] if input.dim() else 1) * group_size)


def _run_all_gather(input: Tensor, group_size: int, group_name: str) -> Tensor:
    result = _gathered(input, group_size, group_name)
    _resolve_process_group(group_name)._allgather_base(result, input.contiguous()).wait()
    return result


def _scattered(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    return _new(input, _rows(input, group_size))


def _run_reduce_scatter(input: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    result = _scattered(input, reduce_op, group_size, group_name)
    group = _resolve_process_group(group_name)
    group._reduce_scatter_base(result, input.contiguous(), _options(reduce_op)).wait()
    return result


def _exchanged(input: Tensor, output_split_sizes: Any, input_split_sizes: Any, group_name: str) -> Tensor:
    return _new(input, sum(output_split_sizes))


def _run_all_to_all(
    input: Tensor, output_split_sizes: Any, input_split_sizes: Any, group_name: str
) -> Tensor:
    result = _exchanged(input, output_split_sizes, input_split_sizes, group_name)
    group = _resolve_process_group(group_name)
    sizes = list(output_split_sizes), list(input_split_sizes)
    group.alltoall_base(result, input.contiguous(), *sizes).wait()
    return result


# ---- their gradients


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.arguments = inputs[1:]


def _linear_reduction(name: str, reduce_op: str) -> None:
    if reduce_op.lower() not in ("sum", "avg"):
        raise RuntimeError(f"{name}: the gradient is defined for the reductions sum and avg, not {reduce_op}")


def _all_reduce_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    reduce_op, group_name = ctx.arguments
    _linear_reduction("all_reduce", reduce_op)
    return _ops().all_reduce(grad, reduce_op, group_name), None, None


def _broadcast_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    src, group_name = ctx.arguments
    total = _ops().all_reduce(grad, "sum", group_name)
    is_root = _resolve_process_group(group_name).rank() == src
    return (total if is_root else _C.functions.zeros_like(total)), None, None


def _all_gather_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    group_size, group_name = ctx.arguments
    return _ops().reduce_scatter_tensor(grad, "sum", group_size, group_name), None, None


def _reduce_scatter_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    reduce_op, group_size, group_name = ctx.arguments
    _linear_reduction("reduce_scatter_tensor", reduce_op)
    result = _ops().all_gather_into_tensor(grad, group_size, group_name)
    return (result / group_size if reduce_op.lower() == "avg" else result), None, None, None


def _all_to_all_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    output_split_sizes, input_split_sizes, group_name = ctx.arguments
    result = _ops().all_to_all_single(grad, list(input_split_sizes), list(output_split_sizes), group_name)
    return result, None, None, None


# Schema, kernel, result without data, gradient.
_OPERATORS: list[tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = [
    ("all_reduce(Tensor input, str reduce_op, str group_name)", _run_all_reduce, _like, _all_reduce_gradient),
    ("broadcast(Tensor input, int src, str group_name)", _run_broadcast, _like, _broadcast_gradient),
    (
        "all_gather_into_tensor(Tensor input, int group_size, str group_name)",
        _run_all_gather,
        _gathered,
        _all_gather_gradient,
    ),
    (
        "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name)",
        _run_reduce_scatter,
        _scattered,
        _reduce_scatter_gradient,
    ),
    (
        "all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, "
        "str group_name)",
        _run_all_to_all,
        _exchanged,
        _all_to_all_gradient,
    ),
]


def _define() -> list[library.Library]:
    """Defines the operators, their forms for lists and in place, and the names of those with gradients."""
    plain, with_gradients = (
        library.Library(name, "DEF") for name in ("_c10d_functional", "_c10d_functional_autograd")
    )
    for schema, kernel, fake, gradient in _OPERATORS:
        name = schema.partition("(")[0]
        for lib in (plain, with_gradients):
            lib.define(f"{schema} -> Tensor")
            lib.impl(name, kernel, "CompositeExplicitAutograd")
            lib._register_fake(name, fake)
            library.register_autograd(f"{lib.ns}::{name}", gradient, setup_context=_keep)
        if name in ("all_reduce", "broadcast"):
            _define_in_place(plain, name, schema)
        if name != "all_to_all_single" and name != "broadcast":
            _define_for_lists(plain, name, schema)
    plain.define("wait_tensor(Tensor tensor) -> Tensor")
    plain.impl("wait_tensor", lambda tensor: tensor.view_as(tensor), "CompositeImplicitAutograd")
    return [plain, with_gradients]


def _define_in_place(lib: library.Library, name: str, schema: str) -> None:
    arguments = schema.partition("(")[2].replace("Tensor input", "Tensor(a!) input")
    lib.define(f"{name}_({arguments} -> Tensor(a!)")

    def in_place(input: Tensor, *rest: Any) -> Tensor:
        return input.copy_(getattr(_ops(), name)(input, *rest))

    lib.impl(f"{name}_", in_place, "CompositeImplicitAutograd")


def _define_for_lists(lib: library.Library, name: str, schema: str) -> None:
    arguments = schema.partition("(")[2].replace("Tensor input", "Tensor[] inputs")
    lib.define(f"{name}_coalesced({arguments} -> Tensor[]")

    def for_lists(inputs: list[Tensor], *rest: Any) -> list[Tensor]:
        return [getattr(_ops(), name)(input, *rest) for input in inputs]

    lib.impl(f"{name}_coalesced", for_lists, "CompositeImplicitAutograd")


_libraries = _define()


def _ops() -> Any:
    from .. import ops

    return ops._c10d_functional


# ---- functions


def _group_of(group: Any, tag: str = "") -> ProcessGroup:
    """Returns the group from what PyTorch's functions take: a group or its name, ranks, a mesh of one
    dimension, or a mesh with a dimension.
    """
    if group is None or isinstance(group, ProcessGroup):
        return _resolve(group)
    if isinstance(group, str):
        return _resolve_process_group(group)
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        return group.get_group()
    if isinstance(group, (list, tuple)):
        return _group_of_ranks(tuple(group))
    raise ValueError(f"unsupported type for group: {type(group).__name__}")


_groups_of_ranks: dict[tuple[int, ...], ProcessGroup] = {}


def _group_of_ranks(ranks: tuple[int, ...]) -> ProcessGroup:
    world = _resolve(None)
    if list(ranks) == list(range(world.size())):
        return world
    group = _groups_of_ranks.get(ranks)
    if group is None or _get_process_group_name(group) == "None":  # it was destroyed
        group = _groups_of_ranks[ranks] = new_group(list(ranks), use_local_synchronization=True)
    return group


def _name(group: ProcessGroup) -> str:
    return _get_process_group_name(group)


def wait_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor: results of collectives are complete."""
    return _ops().wait_tensor(tensor)


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """Returns the reduction of the tensors of all ranks."""
    return _ops().all_reduce(self, reduceOp.lower(), _name(_group_of(group, tag)))


def all_reduce_coalesced(self: list[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    """Returns the reductions of several tensors."""
    return list(_ops().all_reduce_coalesced(self, reduceOp.lower(), _name(_group_of(group, tag))))


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """Returns the tensor of rank ``src`` of the group."""
    return _ops().broadcast(self, src, _name(_group_of(group, tag)))


def _along(dim: int, tensor: Tensor, parts: int) -> Tensor:
    """Returns ``parts`` equal parts of dimension 0 side by side along ``dim``."""
    return tensor if dim == 0 else _C.functions.cat(_C.functions.chunk(tensor, parts, 0), dim)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Returns the tensors of all ranks one after the other along ``gather_dim``."""
    g = _group_of(group, tag)
    everyone = _ops().all_gather_into_tensor(self.contiguous(), g.size(), _name(g))
    return _along(gather_dim, everyone, g.size())


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """``all_gather_tensor``, which has a gradient too."""
    return all_gather_tensor(self, gather_dim, group, tag)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """Returns this rank's part, along ``scatter_dim``, of the reduction of the tensors of all ranks."""
    g = _group_of(group, tag)
    size = g.size()
    if self.shape[scatter_dim] % size:
        raise AssertionError(
            f"input dimension 0 ({self.shape[scatter_dim]} must be a multiple of group_size {size}"
        )
    parts = self if scatter_dim == 0 else _C.functions.cat(_C.functions.chunk(self, size, scatter_dim), 0)
    return _ops().reduce_scatter_tensor(parts.contiguous(), reduceOp.lower(), size, _name(g))


def reduce_scatter_tensor_autograd(
    self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> Tensor:
    """``reduce_scatter_tensor``, which has a gradient too."""
    return reduce_scatter_tensor(self, reduceOp, scatter_dim, group, tag)


def reduce_scatter_tensor_coalesced(
    inputs: list[Tensor], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """Returns this rank's parts of the reductions of several tensors."""
    return [reduce_scatter_tensor(t, reduceOp, dim, group, tag) for t, dim in zip(inputs, scatter_dim)]


def all_to_all_single(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """Sends parts of dimension 0 to the ranks and returns theirs, one after the other."""
    g = _group_of(group, tag)
    if output_split_sizes is None or input_split_sizes is None:
        if output_split_sizes is not None or input_split_sizes is not None:
            raise AssertionError(
                "output_split_sizes and input_split_sizes must either be specified together or both set "
                "to None"
            )
        output_split_sizes = input_split_sizes = [self.shape[0] // g.size()] * g.size()
    return _ops().all_to_all_single(
        self.contiguous(), list(output_split_sizes), list(input_split_sizes), _name(g)
    )


def all_to_all_single_autograd(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """``all_to_all_single``, which has a gradient too."""
    return all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag)


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "") -> Tensor:
    """Sends this rank's tensor to rank ``src_dst[rank]`` and returns the one that was sent to it."""
    g = _group_of(group, tag)
    size, rank = g.size(), g.rank()
    if sorted(src_dst) != list(range(size)):
        raise AssertionError(f"permute_tensor: {src_dst} is no permutation of {size} ranks")
    outgoing, incoming = [0] * size, [0] * size
    outgoing[src_dst[rank]] = incoming[src_dst.index(rank)] = self.numel()
    return all_to_all_single(self.reshape(-1), incoming, outgoing, g).view(self.shape)
