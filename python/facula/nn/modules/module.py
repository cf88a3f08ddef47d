"""Module: the base of everything that has parameters."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ... import _C
from ... import __future__ as _future
from ..._queries import typename
from ...utils.hooks import RemovableHandle
from ..parameter import Buffer, Parameter, is_lazy

Tensor = _C.Tensor
T = TypeVar("T", bound="Module")
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_REGISTRATION = ("_parameters", "_buffers", "_modules")
_global_hooks: dict[str, OrderedDict] = {name: OrderedDict() for name in (*_HOOKS, *_REGISTRATION)}
# PyTorch's names of these.
_global_parameter_registration_hooks = _global_hooks["_parameters"]
_global_buffer_registration_hooks = _global_hooks["_buffers"]
_global_module_registration_hooks = _global_hooks["_modules"]
_global_always_called: set[int] = set()
_global_with_kwargs: set[int] = set()


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, the dtype, non_blocking and the memory format of the arguments of ``to``."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    memory_format, non_blocking = kwargs.pop("memory_format", None), kwargs.pop("non_blocking", False)
    tensor = kwargs.pop("tensor", None)
    kwargs.pop("copy", None)
    if kwargs:
        raise TypeError(f"to() received an invalid combination of arguments: {sorted(kwargs)}")
    flags = []
    for a in args if tensor is None else (tensor, *args):
        if isinstance(a, _C.dtype):
            dtype = a
        elif isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, bool):
            flags.append(a)
        elif a is not None:
            device = a
    if flags:
        non_blocking = flags[0]
    return None if device is None else _C.device(device), dtype, non_blocking, memory_format


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        return (
            "<All keys matched successfully>"
            if not self.missing_keys and not self.unexpected_keys
            else super().__repr__()
        )


def _tell_core() -> None:
    _C.set_global_hooks(any(_global_hooks[kind] for kind in _HOOKS))


def _add_global(kind: str, hook: Callable) -> RemovableHandle:
    handle = RemovableHandle(_global_hooks[kind], _tell_core)
    _global_hooks[kind][handle.id] = hook
    _tell_core()
    return handle


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after the forward of every module; if ``with_kwargs``, with
    the keyword arguments before the output.
    """
    handle = _add_global("_forward_hooks", hook)
    if with_kwargs:
        _global_with_kwargs.add(handle.id)
    if always_call:
        _global_always_called.add(handle.id)
    return handle


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, args)`` before the forward of every module."""
    return _add_global("_forward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` in the backward of every module."""
    return _add_global("_backward_hooks", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` before the backward of every module."""
    return _add_global("_backward_pre_hooks", hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` when a parameter is added; a return value replaces it."""
    return _add_global("_parameters", hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` when a buffer is added; a return value replaces it."""
    return _add_global("_buffers", hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls ``hook(module, name, submodule)`` when a submodule is added; a return value replaces it."""
    return _add_global("_modules", hook)


def _registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """Returns a value that is being added, or its replacement by a global hook."""
    for hook in list(_global_hooks[kind].values()):
        result = hook(module, name, value)
        if result is not None:
            value = result
    return value


def _forward_unimplemented(self: Module, *input: Any) -> None:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(_C.ModuleBase):
    """Base of all neural network modules; a submodule, parameter or buffer is registered by assigning it.

    Subclasses define ``forward``; calling the module runs it with its hooks.
    """

    training: bool
    dump_patches = False
    _version = 1
    call_super_init = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                    f"'{next(iter(kwargs))}'"
                )
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers_set"] = set()
        d["_modules"] = {}
        for kind in _HOOKS:
            d[kind] = OrderedDict()
        for kind in (
            "_forward_hooks_with_kwargs",
            "_forward_pre_hooks_with_kwargs",
            "_forward_hooks_always_called",
            "_state_dict_hooks",
            "_state_dict_pre_hooks",
            "_load_state_dict_pre_hooks",
            "_load_state_dict_post_hooks",
        ):
            d[kind] = OrderedDict()
        d["_is_full_backward_hook"] = None
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # An attribute, not a method: type checkers take each subclass's signature.
    forward: Callable[..., Any] = _forward_unimplemented

    # ---- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' "
                    f"({_C.package_name()}.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if parameters is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            self._modules[name] = _registered("_modules", self, name, value)
        elif parameters is not None and name in self._modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' "
                    f"({_C.package_name()}.nn.Module or None expected)"
                )
            self._modules[name] = _registered("_modules", self, name, None)
        elif isinstance(value, Buffer) or (parameters is not None and name in self._buffers):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{typename(value)}' as buffer '{name}' ({_C.package_name()}.nn.Buffer, "
                    f"{_C.package_name()}.Tensor or None expected)"
                )
            is_buffer = isinstance(value, Buffer)
            persistent = value.persistent if is_buffer else name not in self._non_persistent_buffers_set
            self.register_buffer(name, value, *(() if persistent else (False,)))
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for kind in _REGISTRATION:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def _forget(self, name: str, member_kind: str) -> None:
        """Removes members of other kinds than ``member_kind``; a member of that kind keeps its position."""
        self.__dict__.pop(name, None)
        for kind in _REGISTRATION:
            if kind != member_kind:
                self.__dict__[kind].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __dir__(self) -> list[str]:
        names = set(super().__dir__()) | set(self._parameters) | set(self._buffers) | set(self._modules)
        return sorted(n for n in names if n.isidentifier())

    def _check_name(self, what: str, name: str, places: tuple[str, ...]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and not any(name in self.__dict__[p] for p in places):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, which becomes an attribute of this name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, ("_parameters",))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                f"({_C.package_name()}.nn.Parameter or None required)"
            )
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                f"explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() "
                f"method."
            )
        self._parameters[name] = param if param is None else _registered("_parameters", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is part of the state but is not trained."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, ("_buffers",))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' ({_C.package_name()} "
                f"Tensor or "
                f"None required)"
            )
        self._buffers[name] = _registered("_buffers", self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(
            name
        )

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module, which becomes an attribute of this name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, ("_modules",))
        self._modules[name] = _registered("_modules", self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as add_module."""
        self.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted path."""
        module: Module = self
        for part in target.split(".") if target else []:
            if not hasattr(module, part):
                raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replaces the module at a dotted path; unless ``strict``, a missing one is added."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_tensor(self, target: str, places: str, kind: str) -> Tensor:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in module.__dict__[places]:
            raise AttributeError(f"`{name}` is not {kind}")
        return module.__dict__[places][name]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        return self._get_tensor(target, "_parameters", "an nn.Parameter")  # type: ignore[return-value]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        return self._get_tensor(target, "_buffers", "a buffer")

    def get_extra_state(self) -> Any:
        """Returns state besides tensors for state_dict; define it together with set_extra_state."""
        raise RuntimeError("define get_extra_state and set_extra_state together")

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError("define get_extra_state and set_extra_state together")

    # ---- walking

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(
                    memo, f"{prefix}.{name}" if prefix else name, remove_duplicate
                )

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, get: Callable[[Module], Any], prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in get(module):
                if value is None or (remove_duplicate and value in seen):
                    continue
                seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    # ---- conversion

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Calls fn on every submodule, children first, then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, p in self._parameters.items():
            if p is None:
                continue
            with _C.GradMode(False):
                new, grad = fn(p), p.grad
                if _future.get_swap_module_params_on_conversion():
                    self._swap_parameter(name, p, new, grad if grad is None else fn(grad))
                    continue
                overwrite = _future.get_overwrite_module_params_on_conversion()
                # Like in PyTorch, other holders of the parameter see the new value.
                if not is_lazy(p) and (overwrite or new.is_meta != p.is_meta):
                    p = self._parameters[name] = Parameter(new, p.requires_grad)
                elif new is not p:
                    p.data = new
                if grad is not None:
                    moved = fn(grad)
                    if moved is not p.grad:
                        p.grad = moved.requires_grad_(grad.requires_grad)
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def _swap_parameter(self, name: str, p: Tensor, new: Tensor, new_grad: Tensor | None) -> None:
        """Exchanges the contents of the parameter and its gradient with the converted ones, so that
        objects stay the same.
        """
        from ...utils import swap_tensors

        grad, p.grad = p.grad, None
        if grad is not None and new_grad is not None and new_grad is not grad:
            swap_tensors(grad, new_grad.requires_grad_(grad.requires_grad))
        try:
            swap_tensors(p, Parameter(new, p.requires_grad))
        except Exception as e:
            raise RuntimeError(f"_apply(): Couldn't swap {self._get_name()}.{name}") from e
        p.grad = grad

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves floating and complex parameters and buffers to a dtype, or all to a device or memory
        format.
        """
        device, dtype, _, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )

        def convert(t: Tensor) -> Tensor:
            if dtype is not None and (t.is_floating_point() or t.is_complex()):
                t = t.to(dtype)
            if device is not None:
                t = t.to(device)
            if memory_format is not None and t.dim() in (4, 5):
                t = t.contiguous(memory_format=memory_format)
            return t

        return self._apply(convert)

    def _to_floating(self: T, dtype: Any) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: T) -> T:
        return self._to_floating(_C.float32)

    def double(self: T) -> T:
        return self._to_floating(_C.float64)

    def half(self: T) -> T:
        return self._to_floating(_C.float16)

    def bfloat16(self: T) -> T:
        return self._to_floating(_C.bfloat16)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Gives every parameter and buffer new, uninitialized memory on a device."""
        return self._apply(lambda t: _C.functions.empty_like(t, device=device), recurse)

    def share_memory(self: T) -> T:
        """Moves all parameters and buffers to memory that child processes share."""
        return self._apply(lambda t: t.share_memory_())

    def cpu(self: T) -> T:
        return self._apply(lambda t: t.cpu())

    def cuda(self: T, device: Any = None) -> T:
        return self._apply(lambda t: t.cuda(device))

    def xpu(self: T, device: Any = None) -> T:
        return self._apply(lambda t: t.xpu(device))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Makes calls of the module run :func:`facula.compile`'s form of ``forward``; the arguments are those
        of ``compile``. Copies and pickles of the module are not compiled.
        """
        from ...compiler import compile

        self.__dict__["forward"] = compile(self.forward, *args, **kwargs)

    def type(self: T, dst_type: Any) -> T:
        return self._apply(lambda t: t.to(dst_type))

    def train(self: T, mode: bool = True) -> T:
        """Sets training mode in this module and its submodules."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets evaluation mode: train(False)."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.parameters():
            if set_to_none:
                p.grad = None  # without reading it: programs rely on that
            elif p.grad is not None:
                if p.grad.requires_grad:
                    p.grad = p.grad.detach()
                p.grad.zero_()

    # ---- hooks and calls

    def _add_hook(self, kind: str, hook: Callable, prepend: bool = False) -> RemovableHandle:
        hooks = self.__dict__[kind]
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, args)`` before forward; a result that is not None replaces the arguments."""
        handle = self._add_hook("_forward_pre_hooks", hook, prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` after forward; a result that is not None replaces the
        output.
        """
        handle = self._add_hook("_forward_hooks", hook, prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def _add_backward_hook(self, hook: Callable, full: bool, prepend: bool = False) -> RemovableHandle:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. "
                "Please use only one of them."
            )
        self._is_full_backward_hook = full
        return self._add_hook("_backward_hooks", hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` once the gradients of the inputs are known.

        A return value that is not None replaces ``grad_input``.
        """
        return self._add_backward_hook(hook, True, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The same as register_full_backward_hook, which should be preferred."""
        return self._add_backward_hook(hook, False)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` before the gradients of this module are computed."""
        return self._add_hook("_backward_pre_hooks", hook, prepend)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Runs forward with the hooks around it; only modules with hooks take this path."""
        for hook in list(_global_hooks["_forward_pre_hooks"].values()):
            result = hook(self, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                result = hook(self, args, kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                            f"{result}."
                        )
                    args, kwargs = result
            else:
                result = hook(self, args)
                if result is not None:
                    args = result if isinstance(result, tuple) else (result,)
        backward = [*self._backward_hooks.values(), *_global_hooks["_backward_hooks"].values()]
        backward_pre = [*_global_hooks["_backward_pre_hooks"].values(), *self._backward_pre_hooks.values()]
        record = None
        if (backward or backward_pre) and _C.is_grad_enabled():
            record = _BackwardRecord(self, backward, backward_pre)
            args = record.watch_inputs(args)
        pending = [
            (hook, key in _global_with_kwargs, key in _global_always_called)
            for key, hook in _global_hooks["_forward_hooks"].items()
        ] + [
            (hook, key in self._forward_hooks_with_kwargs, key in self._forward_hooks_always_called)
            for key, hook in self._forward_hooks.items()
        ]
        output = None
        try:
            output = self.forward(*args, **kwargs)
            while pending:
                hook, with_kwargs, _ = pending.pop(0)
                result = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
                if result is not None:
                    output = result
        except Exception:
            for hook, with_kwargs, always in pending:
                if always:
                    try:
                        hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
                    except Exception as error:  # the first failure is the one to report
                        warnings.warn(
                            f"forward hook with ``always_call=True`` raised an exception that was "
                            f"silenced: {error}",
                            stacklevel=2,
                        )
            raise
        return record.watch_outputs(output) if record else output

    # ---- state

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: dict | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name; tensors share storage with the module's."""
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        version = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = version
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, version)
            if result is not None:
                destination = result
        return destination

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before state_dict collects the state."""
        return self._add_hook("_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` afterwards; the hook may change the
        dict in place.
        """
        return self._add_hook("_state_dict_hooks", hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def _register_load_state_dict_pre_hook(
        self, hook: Callable, with_module: bool = False
    ) -> RemovableHandle:
        return self._add_hook("_load_state_dict_pre_hooks", partial(hook, self) if with_module else hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)`` before this module's part is loaded.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after loading; it may change the lists of keys in
        place.
        """
        return self._add_hook("_load_state_dict_post_hooks", hook)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = {n: p for n, p in self._parameters.items() if p is not None}
        own.update(
            (n, b)
            for n, b in self._buffers.items()
            if b is not None and n not in self._non_persistent_buffers_set
        )
        for name, mine in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            loaded = state_dict[key]
            if isinstance(loaded, Tensor) and mine.dim() == 0 and loaded.shape == (1,):
                loaded = loaded[0]  # older files store numbers like this
            if not isinstance(loaded, Tensor):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected a Tensor from the checkpoint '
                    f"but received {type(loaded).__name__}"
                )
            elif loaded.shape != mine.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {loaded.shape} from checkpoint, "
                    f"the shape in current model is {mine.shape}."
                )
            elif _future.get_swap_module_params_on_conversion():
                from ...utils import swap_tensors

                try:
                    with _C.GradMode(False):
                        new = mine.module_load(loaded, assign=assign)
                    if new is mine or new is loaded:
                        raise RuntimeError(
                            "module_load returned one of its arguments, it should return a new tensor"
                        )
                    if name in self._parameters and not isinstance(new, Parameter):
                        new = Parameter(new, mine.requires_grad)
                    swap_tensors(mine, new.requires_grad_(mine.requires_grad))
                except Exception as e:
                    error_msgs.append(
                        f'While swapping the parameter named "{key}", whose dimensions in the model are '
                        f"{mine.size()} and whose dimensions in the checkpoint are {loaded.size()}, an "
                        f"exception occurred : {e.args}."
                    )
            elif assign:
                if name in self._parameters:
                    if not isinstance(loaded, Parameter):
                        loaded = Parameter(loaded, mine.requires_grad)
                    else:
                        loaded.requires_grad_(mine.requires_grad)
                    self._parameters[name] = loaded
                else:
                    self._buffers[name] = loaded
            else:
                if mine.is_meta and not loaded.is_meta:
                    import warnings

                    warnings.warn(
                        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
                        "in the current model, which is a no-op. (Did you mean to pass `assign=True` to "
                        "assign items in the state dictionary to their corresponding key in the module "
                        "instead of copying them in place?)",
                        stacklevel=2,
                    )
                with _C.GradMode(False):
                    mine.copy_(loaded)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    rest = key[len(prefix) :].split(".", 1)
                    if (len(rest) > 1 and rest[0] not in self._modules) or (
                        len(rest) == 1 and rest[0] not in own
                    ):
                        unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies tensors by name into parameters and buffers; with ``strict`` names must match exactly.

        With ``assign``, the tensors themselves become parameters and buffers, in their own dtype.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)  # hooks may change it
        if metadata is not None:
            state_dict._metadata = metadata  # type: ignore[attr-defined]

        def load(module: Module, state: Any, prefix: str) -> None:
            local = dict((metadata or {}).get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = True
            module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    start = prefix + name + "."
                    load(child, {k: v for k, v in state.items() if k.startswith(start)}, start)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                        "to return "
                        "new values; change incompatible_keys in place."
                    )

        load(self, state_dict, "")
        if strict:
            if unexpected:
                errors.insert(
                    0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". "
                )
            if missing:
                errors.insert(
                    0, "Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". "
                )
        if errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors)
            )
        return _IncompatibleKeys(missing, unexpected)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if (original := getattr(state.get("forward"), "_torchdynamo_orig_callable", None)) is not None:
            del state["forward"]
            if getattr(original, "__self__", None) is not self:  # a function that was assigned
                state["forward"] = original
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)  # older files lack some of these tables
        self.__dict__.update(state)

    # ---- text

    def extra_repr(self) -> str:
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [indented(f"({name}): {module!r}") for name, module in self._modules.items()]
        if not children and "\n" not in extra:
            return f"{self._get_name()}({extra})"
        lines = (extra.split("\n") if extra else []) + children
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class TensorModule(Module):
    """A module that returns one tensor; it differs from Module for readers of annotations only."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...


def indented(text: str) -> str:
    """Indents all lines but the first by two spaces."""
    return text.replace("\n", "\n  ")


@functools.cache
def _hook_function() -> Any:
    """Returns the autograd node through which gradients pass. All calls share one class: a class for each
    call would keep the call's tensors alive until garbage collection.
    """
    from ...autograd import Function

    class BackwardHookFunction(Function):
        @staticmethod
        def forward(ctx: Any, told: Callable[[tuple], tuple], materialize: bool, *tensors: Tensor) -> tuple:
            ctx.told = told
            ctx.set_materialize_grads(materialize)
            views = [t.view_as(t) for t in tensors]
            ctx.mark_non_differentiable(*[v for t, v in zip(tensors, views) if not t.requires_grad])
            return tuple(views)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple:
            return None, None, *ctx.told(grads)

    return BackwardHookFunction


def _through_node(tensors: list[Tensor], materialize: bool, told: Callable[[tuple], tuple]) -> tuple:
    """Passes tensors through a node of the tape, which calls ``told`` with their gradients.

    While ``compile`` records a function that calls ``backward()``, and one of the tensors requires a
    gradient, a hook of a view of it takes the place of the node (_dynamo/policy.py): it is called when the
    gradients are recorded. Like results of a node, one of the views that ``unbind`` returns refuses to be
    written in place.
    """
    if not _C.is_capturing():
        passed = _hook_function().apply(told, materialize, *tensors)
        return passed if isinstance(passed, tuple) else (passed,)
    views = [t.unsqueeze(0).unbind(0)[0] for t in tensors]
    (at,) = [k for k, t in enumerate(tensors) if t.requires_grad]

    def hook(g: Tensor) -> Tensor:
        grads = [_C.functions.zeros_like(t) if materialize else None for t in tensors]
        grads[at] = g
        changed = told(tuple(grads))[at]
        if changed is None:
            raise NotImplementedError("a module's backward hook that returns no gradient, in a trace")
        return changed

    views[at].register_hook(hook)
    return tuple(views)


class _BackwardRecord:
    """Calls a module's backward hooks: with the gradients of its outputs, then with those of its inputs."""

    def __init__(self, module: Module, hooks: list[Callable], pre_hooks: list[Callable]) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple | None = None
        self.has_inputs, self.inputs = False, 0

    def _pass_through(
        self, items: tuple, materialize: bool, on_grads: Callable[[tuple], tuple | None]
    ) -> tuple:
        """Passes the tensors among the items through a node of the tape. ``on_grads`` gets and returns a
        gradient or None for each.
        """
        places = [k for k, item in enumerate(items) if isinstance(item, Tensor)]

        def told(grads: tuple) -> tuple:
            packed: list[Any] = [None] * count
            for k, g in zip(places, grads):
                packed[k] = g
            new = on_grads(tuple(packed))
            return grads if new is None else tuple(new[k] for k in places)

        count = len(items)
        passed = _through_node([items[k] for k in places], materialize, told)
        result = list(items)
        for k, t in zip(places, passed):
            result[k] = t
        return tuple(result)

    def _call(self, hooks: list[Callable], grads: tuple, what: str, *more: Any) -> tuple | None:
        """Returns the gradients that the hooks substitute; None if they do not."""
        changed = None
        for hook in hooks:
            result = hook(self.module, grads, *more)
            if result is None:
                continue
            result = result if isinstance(result, tuple) else (result,)
            if len(result) != len(grads):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of {what}, got {len(result)}, but "
                    f"expected {len(grads)}"
                )
            grads = changed = result
        return changed

    def watch_inputs(self, args: tuple) -> tuple:
        self.inputs = len(args)
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return args
        self.has_inputs = True

        def done(grads: tuple) -> tuple | None:
            # With create_graph=True the gradients have a history that refers to this record.
            outputs, self.grad_outputs = self.grad_outputs, None
            if outputs is None:  # these gradients did not come through the module's output
                return None
            return self._call(self.hooks, grads, "grad_input", outputs)

        return self._pass_through(args, True, done)

    def watch_outputs(self, output: Any) -> Any:
        if not isinstance(output, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                f"received {type(output)}",
                stacklevel=3,
            )
            return output
        items = output if isinstance(output, tuple) else (output,)
        if not any(isinstance(t, Tensor) and t.requires_grad for t in items):
            return output

        def arrive(grads: tuple) -> tuple | None:
            changed = self._call(self.pre_hooks, grads, "grad_output")
            arrived = grads if changed is None else changed
            if self.has_inputs:
                self.grad_outputs = arrived
            else:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs "
                    "since no inputs require gradients. See register_full_backward_hook for more details.",
                    stacklevel=3,
                )
                result = self._call(self.hooks, (None,) * self.inputs, "grad_input", arrived)
                if result is not None and any(g is not None for g in result):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return "
                        "None or None for all gradients."
                    )
            return changed

        watched = self._pass_through(items, False, arrive)
        if not isinstance(output, tuple):
            return watched[0]
        return type(output)(*watched) if hasattr(output, "_fields") else watched
