from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..modules.module import Module

__all__ = ["DataParallel", "data_parallel"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    T = _TypeVar("T", bound=Module, default=Any)
else:
    T = TypeVar("T", bound=Module)


class DataParallel(Module, Generic[T]):
    """Wraps a module as ``.module``, like PyTorch's without GPUs: calls are passed on unchanged.

    >>> nn.DataParallel(nn.Linear(2, 3))(facula.ones(1, 2)).shape
    facula.Size([1, 3])
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module, self.device_ids = module, []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """``module(*inputs, **module_kwargs)``."""
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*args, **(module_kwargs or {}))
