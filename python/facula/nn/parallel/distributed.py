from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import distributed
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Wraps a module as ``.module`` in a process group of one, whose gradients are those of all
    processes.

    Raises RuntimeError for a module without a parameter that requires a gradient, as in PyTorch.

    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0)
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
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        distributed.get_world_size(process_group)  # raises if there is no group
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that "
                "requires a gradient."
            )
        if device_ids or output_device is not None:
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with modules on a "
                f"GPU, but got device_ids {device_ids}, output_device {output_device}, and parameters on "
                f"{ {str(p.device) for p in module.parameters()} }."
            )
        self.module, self.dim, self.device_ids, self.output_device = module, dim, None, None
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.process_group = process_group or distributed.group.WORLD
        self.require_backward_grad_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of steps within the block accumulate before the processes exchange them."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, **kwargs: Any
    ) -> Iterator[None]:
        """Processes with fewer batches wait for the others; with one process, this has no effect."""
        yield
