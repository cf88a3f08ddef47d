"""Processes arranged as a grid with named dimensions, and a group for each line of the grid."""

from __future__ import annotations

from typing import Any

from .. import _C
from . import (
    GroupMember,
    ProcessGroup,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)

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
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        _groups: list[Any] | None = None,
        **options: Any,
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
        self._groups = [self._line_group(d) for d in range(self.ndim)] if _groups is None else _groups

    def _line_group(self, dim: int) -> Any:
        """Returns the group of the ranks that differ from this one in dimension ``dim`` alone. All processes
        create the groups of all lines, in the same order.
        """
        size = int(self.mesh.size(dim))
        if size == get_world_size():
            return GroupMember.WORLD
        own: Any = GroupMember.NON_GROUP_MEMBER
        for ranks in self.mesh.movedim(dim, -1).reshape(-1, size).tolist():
            group = new_group(ranks)
            if get_rank() in ranks:
                own = group
        return own

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
        dims = [self._dimension(n, "__getitem__") for n in names]
        at = self._coordinate("__getitem__")
        lines = self.mesh[tuple(slice(None) if d in dims else at[d] for d in range(self.ndim))]
        in_order = sorted(dims)
        grid = lines.permute([in_order.index(d) for d in dims])
        groups = [self._groups[d] for d in dims]
        return DeviceMesh(self.device_type, grid, mesh_dim_names=names, _groups=groups)

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        flat = self.mesh.reshape(-1)
        if self.ndim == 1 or flat.numel() == get_world_size():
            groups = self._groups if self.ndim == 1 else [GroupMember.WORLD]
            return DeviceMesh(self.device_type, flat, mesh_dim_names=(name,), _groups=groups)
        raise NotImplementedError(
            f"DeviceMesh._flatten of {self!r}, a part of {get_world_size()} ranks, needs a group that "
            "other ranks do not know; flatten the whole mesh, or call new_group() on all ranks"
        )

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        group: ProcessGroup = self._groups[self._dimension(mesh_dim, "get_group")]
        return group

    def get_all_groups(self) -> list[ProcessGroup]:
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        return self._coordinate("get_local_rank")[self._dimension(mesh_dim, "get_local_rank")]

    def _coordinate(self, what: str) -> tuple[int, ...]:
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"DeviceMesh.{what}: rank {get_rank()} is not in the mesh {self!r}")
        return coordinate

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Returns the position of this rank in the grid; None if it has none."""
        at = (self.mesh == get_rank()).nonzero().tolist()
        return tuple(at[0]) if at else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[Any, ...]:
        return self.device_type, self.shape, self.mesh_dim_names, tuple(self.mesh.flatten().tolist())

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
