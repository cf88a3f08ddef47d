"""Tensors distributed over a mesh of processes. A mesh has one process, whose shard is the entire tensor,
so that programs run as on one device; larger process groups raise an error when they are created.

>>> from facula.distributed.tensor import Shard, distribute_tensor, init_device_mesh
>>> facula.distributed.init_process_group("gloo", world_size=1, rank=0)
>>> mesh = init_device_mesh("cpu", (1,))
>>> d = distribute_tensor(facula.ones(2, 3), mesh, [Shard(0)])
>>> tuple(d.to_local().shape), d.placements
((2, 3), (Shard(dim=0),))
>>> facula.distributed.destroy_process_group()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import _C
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh, init_device_mesh
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module",
    "distribute_tensor", "empty", "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip

Tensor = _C.Tensor


def _mesh_of(mesh: DeviceMesh | None) -> DeviceMesh:
    return init_device_mesh("cpu", (1,)) if mesh is None else mesh


def _placed(mesh: DeviceMesh, placements: Sequence[Placement] | None) -> tuple[Placement, ...]:
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
            f"{len(placements)}, and device_mesh.ndim: {mesh.ndim}."
        )
    for p in placements:
        if not isinstance(p, Placement):
            raise TypeError(f"placements: expected Shard, Replicate or Partial, got {p!r}")
    return tuple(placements)


_COPIES = frozenset("clone contiguous cpu detach double float half bfloat16 requires_grad_ to".split())


class DTensor(Tensor):
    """A tensor over a mesh, with a placement for each dimension of the mesh. Created by
    :func:`distribute_tensor` and :meth:`from_local`.

    Results computed from it are DTensors over the same mesh, replicated (a copy keeps the placements):
    with one process, every placement means that it has the entire tensor.
    """

    _mesh: DeviceMesh
    _placements: tuple[Placement, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("DTensor: made by distribute_tensor() or DTensor.from_local()")

    @staticmethod
    def _with_placements(t: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
        dtensor = t.as_subclass(DTensor)
        dtensor._mesh, dtensor._placements = mesh, placements
        return dtensor

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        from ...utils._pytree import tree_leaves

        kwargs = kwargs or {}
        result = super().__torch_function__(func, types, args, kwargs)
        fresh = [r for r in tree_leaves(result) if isinstance(r, DTensor) and not hasattr(r, "_mesh")]
        if fresh:
            operand = next(
                a for a in tree_leaves((args, kwargs)) if isinstance(a, DTensor) and hasattr(a, "_mesh")
            )
            copied = getattr(func, "__name__", "") in _COPIES
            for r in fresh:
                r._mesh = operand._mesh
                r._placements = operand._placements if copied else (Replicate(),) * operand._mesh.ndim
        return result

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
        grad_placements: Any = None,
    ) -> DTensor:
        """Creates a DTensor whose shard on this process is ``local_tensor``; differentiable."""
        mesh = _mesh_of(device_mesh)
        if shape is not None and tuple(shape) != tuple(local_tensor.shape):
            raise RuntimeError(
                f"DTensor.from_local: of one process, the whole has the shape of the part: "
                f"{tuple(local_tensor.shape)}, not {tuple(shape)}"
            )
        return DTensor._with_placements(local_tensor, mesh, _placed(mesh, placements))

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self._placements

    @property
    def _local_tensor(self) -> Tensor:
        return self.as_subclass(Tensor).detach()

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """Returns the shard of this process; differentiable."""
        return self.as_subclass(Tensor)

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """Returns the entire tensor, on each process."""
        return self.as_subclass(Tensor)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        **dtypes: Any,
    ) -> DTensor:
        """Returns the same tensor with other placements."""
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        mesh = self._mesh if device_mesh is None else device_mesh
        placed = _placed(mesh, placements)
        if any(p.is_partial() and p != old for p, old in zip(placed, self._placements)):
            raise RuntimeError(
                "Can not redistribute to Partial, redistributing to Partial is for internal use only!"
            )
        return DTensor._with_placements(self.as_subclass(Tensor), mesh, placed)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (
            f"DTensor(local_tensor={self.as_subclass(Tensor)!r}, device_mesh={self._mesh}, "
            f"placements={self._placements})"
        )


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Distributes a leaf tensor over the mesh."""
    mesh = _mesh_of(device_mesh)
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!"
        )
    placed = _placed(mesh, placements)
    if isinstance(tensor, DTensor):
        if tensor.placements != placed:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different "
                f"placements {placed}."
            )
        return tensor
    distributed = DTensor._with_placements(tensor.detach(), mesh, placed)
    distributed.requires_grad_(tensor.requires_grad)
    return distributed


def place_parameter(module: Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
    """Replaces a parameter of a module by one over the mesh."""
    p = module._parameters[name]
    if p is not None:
        parameter = Parameter(distribute_tensor(p.detach(), mesh, [placement] * mesh.ndim), p.requires_grad)
        module.register_parameter(name, parameter)


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
    output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
) -> Module:
    """Distributes the parameters of a module over the mesh: as ``partition_fn(name, submodule, mesh)``
    places them, others replicated. ``input_fn`` and ``output_fn`` process inputs and outputs.
    """
    mesh = _mesh_of(device_mesh)
    for name, child in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, child, mesh)
        for key, p in list(child._parameters.items()):
            if p is not None and not isinstance(p, DTensor):
                place_parameter(child, key, mesh, Replicate())
        for key, b in child._buffers.items():
            if b is not None and not isinstance(b, DTensor):
                child._buffers[key] = distribute_tensor(b, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh))
    return module


def _factory(name: str) -> Callable[..., DTensor]:
    def f(
        *size: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        **options: Any,
    ) -> DTensor:
        return distribute_tensor(getattr(_C.functions, name)(*size, **options), device_mesh, placements)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"``{name}`` as a DTensor over ``device_mesh``."
    return f


empty, full, ones, rand, randn, zeros = map(_factory, ("empty", "full", "ones", "rand", "randn", "zeros"))
