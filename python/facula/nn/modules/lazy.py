"""Modules that infer a size from their first input."""

from __future__ import annotations

from typing import Any

from ... import _C
from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy

Tensor = _C.Tensor


class LazyModuleMixin:
    """Mixed into a module class: parameters are uninitialized until the first call, whose input
    determines their shapes.

    The module's class then becomes ``cls_to_become``. Subclasses define ``initialize_parameters``, or
    ``_size``, ``_size_in`` and ``_shapes`` like those of this package.
    """

    cls_to_become: Any = None
    _size: str  # the attribute that is inferred from the first input; 0 before

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[call-arg]
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _forget_shapes(self: Any) -> None:
        for name, p in self._parameters.items():
            if p is not None:
                self._parameters[name] = UninitializedParameter(p.requires_grad, p.device, p.dtype)
        for name, b in self._buffers.items():
            if b is not None and b.dim():
                self._buffers[name] = UninitializedBuffer(False, b.device, b.dtype)

    def _size_in(self, input: Tensor) -> int:
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def reset_parameters(self: Any) -> None:
        if not self.has_uninitialized_params() and getattr(self, self._size) != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor) -> None:
        """Gives the parameters the shapes that the input requires."""
        if getattr(self, self._size) == 0:
            setattr(self, self._size, self._size_in(input))
        if self.has_uninitialized_params():
            shapes = self._shapes()
            for name, p in [*self._parameters.items(), *self._buffers.items()]:
                if is_lazy(p):
                    self._materialize(name, p, shapes[name])
            self.reset_parameters()

    def _materialize(self: Any, name: str, p: Any, shape: Any) -> None:
        p.materialize(shape)
        if name in self._buffers:
            self._buffers[name] = p.as_subclass(Tensor)

    def has_uninitialized_params(self: Any) -> bool:
        """Returns whether the shape of a parameter or buffer is unknown."""
        return any(map(is_lazy, [*self._parameters.values(), *self._buffers.values()]))

    def _infer_parameters(self: Any, module: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._forward_pre_hooks_with_kwargs.pop(module._initialize_hook.id, None)
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _save_to_state_dict(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        initialized = {k: v for k, v in {**self._parameters, **self._buffers}.items() if not is_lazy(v)}
        for name, p in {**self._parameters, **self._buffers}.items():
            if p is None or name in self._non_persistent_buffers_set:
                continue
            destination[prefix + name] = p.detach() if name in initialized and not keep_vars else p

    def _lazy_load_hook(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name, p in [*self._parameters.items(), *self._buffers.items()]:
            loaded = state_dict.get(prefix + name)
            if is_lazy(p) and loaded is not None and not is_lazy(loaded):
                self._materialize(name, p, loaded.shape)

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward "
            "pass to correctly initialize the modules"
        )
