"""Processes arranged as a grid with named dimensions: for one process, grids of size 1."""

from __future__ import annotations

from typing import Any

from .. import _C
from . import GroupMember, ProcessGroup, get_world_size, init_process_group, is_initialized

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """The ranks of processes by their positions in a grid.

    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> mesh = facula.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> mesh["tp"].get_local_rank()
    0
    >>> facula.distributed.destroy_process_group()
    """

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None, **options: Any
    ) -> None:
        if not is_initialized():
            init_process_group()
        self.device_type, self.mesh_dim_names = device_type, mesh_dim_names and tuple(mesh_dim_names)
        self.mesh = mesh.to(_C.int32) if isinstance(mesh, _C.Tensor) else _C.tensor(mesh, dtype=_C.int32)
        if self.mesh.numel() > get_world_size():
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {get_world_size()}, "
                f"but found {self.mesh.numel()} ranks!"
            )
        if self.mesh_dim_names and len(self.mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, **options: Any) -> DeviceMesh:
        return DeviceMesh(device_type, [0] if mesh is None else mesh, **options)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    @property
    def ndim(self) -> int:
        return int(self.mesh.ndim)

    def size(self, mesh_dim: int | None = None) -> int:
        return int(self.mesh.numel() if mesh_dim is None else self.mesh.size(mesh_dim))

    def _dimension(self, dim: int | str | None, what: str) -> int:
        if dim is None and self.ndim != 1:
            raise RuntimeError(
                f"DeviceMesh.{what}: mesh_dim must be given for a mesh of {self.ndim} dimensions"
            )
        if isinstance(dim, str):
            if dim not in (self.mesh_dim_names or ()):
                raise KeyError(
                    f"Invalid mesh_dim_names {(dim,)} specified. "
                    f"Valid mesh_dim_names are {list(self.mesh_dim_names or ())}."
                )
            dim = (self.mesh_dim_names or ()).index(dim)
        return range(self.ndim)[dim or 0]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """Returns the submesh of these dimensions."""
        if not self.mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (names,) if isinstance(names, str) else tuple(names)
        shape = [self.shape[self._dimension(n, "__getitem__")] for n in names]
        return DeviceMesh(self.device_type, self.mesh.reshape(shape), mesh_dim_names=names)

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        return DeviceMesh(self.device_type, self.mesh.reshape(-1), mesh_dim_names=(name,))

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        self._dimension(mesh_dim, "get_group")
        assert GroupMember.WORLD is not None
        return GroupMember.WORLD

    def get_all_groups(self) -> list[ProcessGroup]:
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        return 0

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        self._dimension(mesh_dim, "get_local_rank")
        return 0

    def get_coordinate(self) -> tuple[int, ...]:
        return (0,) * self.ndim

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[Any, ...]:
        return self.device_type, self.shape, self.mesh_dim_names

    def __repr__(self) -> str:
        sizes = [f"{n}={k}" for n, k in zip(self.mesh_dim_names, self.shape)] if self.mesh_dim_names else None
        return f"DeviceMesh({'(' + ', '.join(sizes) + ')' if sizes else self.shape}, {self.device_type!r})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    **options: Any,
) -> DeviceMesh:
    """Creates a grid of all processes, from its sizes and names."""
    if ":" in device_type:
        raise RuntimeError(f"Device type with index is not supported but got {device_type}.")
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
        raise RuntimeError(f"Each mesh_dim_name must be unique, got {mesh_dim_names}")
    count = 1
    for size in mesh_shape:
        count *= size
    ranks = _C.functions.arange(count, dtype=_C.int32).reshape(mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
