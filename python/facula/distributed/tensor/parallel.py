"""Parallelization of modules over a mesh. A mesh has one process, which has the entire module: parameters
become DTensors, and inputs and outputs are what the plans specify (a DTensor, or the local tensor).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

from ... import _C
from ...nn.modules.module import Module
from ...utils._pytree import tree_map
from . import DeviceMesh, DTensor, Placement, Replicate, Shard, _mesh_of, place_parameter

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module",
]  # fmt: skip


def _local(x: Any) -> Any:
    return x.to_local() if isinstance(x, DTensor) else x


def _distributed(x: Any, layout: Placement | None, mesh: DeviceMesh) -> Any:
    """Distributes a tensor with this placement; None leaves it unchanged."""
    if layout is None or not isinstance(x, _C.Tensor):
        return x
    return x.redistribute(mesh, [layout]) if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [layout])


class ParallelStyle:
    """How a module is divided, and the layouts of its inputs and outputs."""

    input_layouts: Any = None
    output_layouts: Any = None
    use_local_output = True

    placements: dict[str, Placement] = {}  # of parameters; others are replicated

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        for name in list(module._parameters):
            place_parameter(module, name, mesh, self.placements.get(name, Replicate()))

        def give(m: Module, inputs: Any, outputs: Any) -> Any:
            placed = tree_map(lambda x: _distributed(x, self.output_layouts, mesh), outputs)
            return tree_map(_local, placed) if self.use_local_output else placed

        module.register_forward_hook(give)
        return module


class ColwiseParallel(ParallelStyle):
    """Divides the columns of a Linear or Embedding over the processes."""

    def __init__(
        self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True
    ) -> None:
        self.input_layouts = input_layouts or Replicate()
        self.output_layouts = output_layouts or Shard(-1)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        from ... import nn

        if not isinstance(module, (nn.Linear, nn.Embedding)):
            raise NotImplementedError(
                f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!"
            )
        rows, columns = (0, 1) if isinstance(module, nn.Linear) else (1, 0)
        self.placements = self._of_parameters(rows, columns)
        return super()._apply(module, mesh)

    def _of_parameters(self, features: int, inputs: int) -> dict[str, Placement]:
        """Returns placements by name; ``features`` and ``inputs`` are the weight's dimensions of outputs
        and inputs.
        """
        return {"weight": Shard(features), "bias": Shard(0)}


class RowwiseParallel(ColwiseParallel):
    """Divides the rows of a Linear or Embedding over the processes."""

    def __init__(
        self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True
    ) -> None:
        self.input_layouts = input_layouts or Shard(-1)
        self.output_layouts = output_layouts or Replicate()
        self.use_local_output = use_local_output

    def _of_parameters(self, features: int, inputs: int) -> dict[str, Placement]:
        return {"weight": Shard(inputs)}


class SequenceParallel(ParallelStyle):
    """A normalisation or dropout whose inputs are divided along the sequence."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.output_layouts = Shard(sequence_dim)
        self.use_local_output = use_local_output


class PrepareModuleInput(ParallelStyle):
    """Converts a module's inputs: to DTensors of ``desired_input_layouts``, or to local tensors."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts, self.use_local_output = _as_tuple(input_layouts), use_local_output
        self.desired_input_layouts = _as_tuple(desired_input_layouts)
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        def prepared(x: Any, layout: Any) -> Any:
            distributed = _distributed(x, layout, mesh)
            return _local(distributed) if self.use_local_output else distributed

        def prepare(m: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            wanted = self.desired_input_layouts
            if wanted and len(args) != len(wanted):
                raise ValueError("module inputs and input_layouts should have same length!")
            inputs = tuple(prepared(x, layout) for x, layout in zip(args, wanted)) if wanted else args
            named = self.desired_input_kwarg_layouts
            return inputs, {k: prepared(v, named.get(k)) for k, v in kwargs.items()}

        module.register_forward_pre_hook(prepare, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Converts a module's outputs: to DTensors of ``desired_output_layouts``, or to local tensors."""

    def __init__(
        self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True
    ) -> None:
        self.output_layouts, self.use_local_output = _as_tuple(output_layouts), use_local_output
        self.desired_output_layouts = _as_tuple(desired_output_layouts)
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        def prepare(m: Module, inputs: Any, outputs: Any) -> Any:
            many = outputs if isinstance(outputs, tuple) else (outputs,)
            if len(many) != len(self.desired_output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            results = tuple(
                _distributed(x, layout, mesh) for x, layout in zip(many, self.desired_output_layouts)
            )
            results = tree_map(_local, results) if self.use_local_output else results
            return results if isinstance(outputs, tuple) else results[0]

        module.register_forward_hook(prepare)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """:class:`PrepareModuleInput` and :class:`PrepareModuleOutput` for one module."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, mesh)
        return self.prepare_module_output._apply(module, mesh)


def _as_tuple(x: Any) -> tuple:
    return () if x is None else x if isinstance(x, tuple) else (x,)


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Applies a style, or styles by the paths of submodules, in which ``*`` may replace a name."""
    mesh = _mesh_of(device_mesh)
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: expected a mesh of one dimension, got {mesh}")
    if parallelize_plan is None:
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(parallelize_plan)} found!")  # fmt: skip
    for path, style in parallelize_plan.items():
        for name, child in list(module.named_modules()):
            here, there = name.split("."), path.split(".")
            if len(here) == len(there) and all(map(fnmatch, here, there)):
                parallelize_module(child, mesh, style)
    return module


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Computes cross entropy on sharded logits: with one process, they are complete."""
    yield
