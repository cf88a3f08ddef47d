"""Optimizer: the base class for updating parameters from their gradients."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import wraps
from itertools import chain
from typing import Any, TypeAlias

from .. import _C
from .._queries import typename
from ..program import assume_items, changes, check_unchanged, notes_rows, operand, refuse, rows_taken
from ..utils._foreach_utils import _group_tensors_by_device_and_dtype

Tensor = _C.Tensor


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
# Arguments of optimizers: tensors, groups of them, or tensors with their names.
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


def _use_grad_for_differentiable(step: Callable) -> Callable:
    """Decorates the step of a user-defined optimizer: it is recorded if the optimizer is
    ``differentiable``.
    """

    @wraps(step)
    def f(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _C.GradMode(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return f


def _get_value(x: Any) -> Any:
    """Returns the number in a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Returns (fused, foreach): every optimizer here steps all parameters at once, whatever was
    requested.
    """
    return False, False


_global_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_post_hooks: OrderedDict[int, Callable] = OrderedDict()


def _register(hooks: OrderedDict[int, Callable], hook: Callable, prepend: bool = False) -> Any:
    from ..nn.modules.module import RemovableHandle

    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable) -> Any:
    """Calls ``hook(optimizer, args, kwargs)`` before every step of every optimizer."""
    return _register(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> Any:
    """Calls ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return _register(_global_post_hooks, hook)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The devices that run optimizers from recorded programs of GPUs: none."""
    return []


def _with_hooks(step: Callable) -> Callable:
    @wraps(step)
    def f(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        # a wrapper of another optimizer, whose step calls the hooks
        if "_step_pre_hooks" not in self.__dict__:
            return step(self, *args, **kwargs)
        traced = _C.is_tracing()
        if traced:
            self._refuse_hooks()
        for hook in [*_global_pre_hooks.values(), *self._step_pre_hooks.values()]:
            changed = hook(self, (self, *args), kwargs)
            if changed is not None:
                (_, *args), kwargs = changed  # type: ignore[assignment]
        if traced or (_C.is_capturing() and self._reports_reads()):
            result = self._step_traced(step, args, kwargs)
        elif _C.profile_enabled():
            from ..autograd.profiler import record_function

            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                result = step(self, *args, **kwargs)
        else:
            result = step(self, *args, **kwargs)
        self._opt_called = True
        for hook in [*self._step_post_hooks.values(), *_global_post_hooks.values()]:
            hook(self, (self, *args), kwargs)
        return result

    return f


class Optimizer:
    """Holds parameters in groups, each with its options, and a state for each parameter.

    Subclasses define ``step(closure=None)``. ``params`` is an iterable of tensors, of (name, tensor), or
    of dicts with "params" and options that override ``defaults``.
    """

    # States that are one number, with their initial values. They are tensors in a state_dict, as in PyTorch.
    _numbers: dict[str, float] = {"step": 0.0}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but "
                f"got {typename(params)}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._make_transient()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _patch_step_function(self) -> None:
        """Adds hooks and profiling to ``step`` of this class, for subclasses that assign ``step`` later."""
        step = type(self).step
        if not hasattr(step, "__wrapped__"):
            type(self).step = _with_hooks(step)  # type: ignore[method-assign]

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        """Lists of tensors, divided by device and dtype: see ``utils._foreach_utils``."""
        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def _make_transient(self) -> None:
        """Creates the attributes that are not part of the state: hooks."""
        self._opt_called = False
        self._step_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._step_post_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._state_dict_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._state_dict_post_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._load_state_dict_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._load_state_dict_post_hooks: OrderedDict[int, Callable] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        state = {p: self._export_state(s) for p, s in self.state.items()}
        return {
            "defaults": self.defaults,
            "state": defaultdict(dict, state),
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_transient()
        imported = {p: self._import_state(s) for p, s in self.state.items()}
        self.state = defaultdict(dict, imported)
        if type(self).__module__.startswith(Optimizer.__module__.rpartition(".")[0]):
            for option in inspect.signature(type(self)).parameters.values():
                if option.default is not option.empty:  # older files lack some options
                    for group in self.param_groups:
                        group.setdefault(option.name, option.default)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {k}"] if k else [f"Parameter Group {k}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with its options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, (set, frozenset)):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of "
                "tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names:
            if len(names) != len(params):
                raise ValueError(
                    "all optimizer params should be with/without names. Some param names are missing"
                )
            params = [p[1] for p in params]
        if self.param_groups and params and bool(names) != ("param_names" in self.param_groups[0]):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if names else 'without'} names to the optimizer"
            )
        group = {**param_group, "params": params}
        if names:
            group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {typename(p)}"
                )
            if not p.is_leaf and not getattr(p, "retains_grad", False):
                raise ValueError("can't optimize a non-leaf Tensor")
        for key, default in self.defaults.items():
            if default is required and key not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {key}"
                )
            group.setdefault(key, default)
        if len({id(p) for p in params}) != len(params):
            import warnings

            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will "
                "cause an error",
                stacklevel=3,
            )
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in seen for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters, or fills them with zeros."""
        assume_items(f"the groups of {type(self).__name__}", self.__dict__, ("param_groups",))
        assume_items(f"the groups of {type(self).__name__}", self.param_groups)
        for group in self.param_groups:
            assume_items(f"the parameters of {type(self).__name__}", group, ("params",))
            assume_items(f"the parameters of {type(self).__name__}", group["params"])
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    if p.grad.requires_grad:
                        p.grad = p.grad.detach()
                    p.grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    # Whether steps are counted in tensors while a function is traced, so that its program continues the
    # count.
    _traceable = False
    # Whether that holds of functions whose traces repeat calls alone (program.trace), not of compiled ones.
    _traceable_in_programs = False

    def _all_step_hooks(self) -> tuple[OrderedDict[int, Callable], ...]:
        return _global_pre_hooks, self._step_pre_hooks, self._step_post_hooks, _global_post_hooks

    def _refuse_hooks(self) -> None:
        """Raises if a program would have to call step hooks again."""
        hooks = self._all_step_hooks()
        if any(hooks):
            refuse(
                "hooks",
                f"{type(self).__name__}.step",
                "has step hooks, which a program would not call again",
                "do the work of the hooks in the traced function",
            )
        for of in hooks:
            assume_items(f"the step hooks of {type(self).__name__}", of)

    def _check_traced(self) -> None:
        name = type(self).__name__
        if not (self._traceable or (self._traceable_in_programs and notes_rows())):
            raise NotImplementedError(
                f"{name}.step() is called in a function that is traced, which would fix the numbers that "
                "change from step to step\n"
                "  hint: trace what computes the gradients, and step outside; the optimizers of this package "
                "can be traced"
            )
        assume_items(f"the states of {name}", self.__dict__, ("state",))
        assume_items(f"the groups of {name}", self.__dict__, ("param_groups",))
        assume_items(f"the groups of {name}", self.param_groups)
        for group in self.param_groups:
            assume_items(f"the parameters of {name}", group, ("params",))
            assume_items(f"the parameters of {name}", group["params"])
            for option, value in group.items():
                if isinstance(value, Tensor):  # its elements may change between calls
                    check_unchanged(f"{option} of {name}", self)
                if option != "params" and not self._is_operand(group, option, value):
                    assume_items(f"{option} of {name}", group, (option,))

    # ---- steps of captured programs that data decides (amp.GradScaler)

    def _tensors_of_step(self) -> list[Tensor]:
        """Returns the parameters with gradients and their states, in order; makes missing states."""
        tensors: list[Tensor] = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self._state(p, group)
                    tensors += [p, *[x for x in state.values() if isinstance(x, Tensor)]]
        return tensors

    def _state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Returns the state of a parameter; makes the first one."""
        return self.state[p]

    def _before_step(self) -> list[Tensor]:
        """Returns copies of what a step changes."""
        self._check_traced()
        return [t.detach().clone() for t in self._tensors_of_step()]

    def _keep(self, stepped: Tensor, before: list[Tensor]) -> None:
        """Sets what a step has changed back to ``before`` unless ``stepped``, a tensor of one bool."""
        done: set[int] = set()  # counters are shared
        with _C.GradMode(False):
            for t, old in zip(self._tensors_of_step(), before):
                if id(t) not in done:
                    done.add(id(t))
                    t.copy_(_C.functions.where(stepped, t, old))

    @classmethod
    def _reports_reads(cls) -> bool:
        """Returns whether the methods of this class tell a trace all that they read."""
        return cls._traceable and f"{cls.__module__}.".startswith(f"{_C.package_name()}.optim.")

    # Options besides the learning rate that schedules change: a number, or a tuple of numbers.
    _scheduled: tuple[str, ...] = ()

    def _is_operand(self, group: dict[str, Any], option: str, value: Any) -> bool:
        """Returns whether a traced step reads the option at each call."""
        if option == "lr":
            return type(value) in (int, float)
        # A momentum of 0 leaves parts of a step out.
        return option in self._scheduled and value != 0 and changes(group, option)

    def _step_traced(self, step: Callable, args: Any, kwargs: Any) -> Any:
        """Calls ``step`` with learning rates that the program reads at each call."""
        self._check_traced()
        name, own = type(self).__name__, [dict(group) for group in self.param_groups]
        replaced: list[tuple[dict[str, Any], str, Any]] = []
        try:
            for k, group in enumerate(self.param_groups):
                for option, value in own[k].items():
                    if self._is_operand(group, option, value):
                        read = lambda g=group, o=option: g[o]  # noqa: E731
                        group[option] = operand(f"{option} of {name}", (self, k, option), read)
                        replaced.append((group, option, value))
            self._groups_outside = [(group, before) for group, before in zip(self.param_groups, own)]
            result = step(self, *args, **kwargs)
            self._refuse_rows()
        finally:
            self.__dict__.pop("_groups_outside", None)
            for group, option, value in replaced:
                group[option] = value
        assume_items(f"the states of {name}", self.state)
        for state in self.state.values():
            assume_items(f"the state of a parameter of {name}", state)
        return result

    # Whether a traced step changes only the rows of a table that a sparse gradient would have.
    _steps_rows = False

    def _refuse_rows(self) -> None:
        if not self._steps_rows and any(
            rows_taken(p) is not None for g in self.param_groups for p in g["params"]
        ):
            raise NotImplementedError(
                f"{type(self).__name__}: a parameter is the table of an embedding with sparse=True, "
                "whose rows only SparseAdam steps in a traced function\n"
                "  hint: leave sparse False, or give the table to SparseAdam"
            )

    def _outside_of_trace(self, group: dict[str, Any]) -> dict[str, Any]:
        """Returns the options of a group as numbers, with which a first state is computed during a trace."""
        for traced, before in self.__dict__.get("_groups_outside", ()):
            if traced is group:
                return before
        return group

    def _loss_of(self, closure: Callable[[], Any] | None) -> Any:
        if closure is None:
            return None
        with _C.GradMode(True):
            return closure()

    # ---- hooks

    _hook = staticmethod(_register)

    def register_step_pre_hook(self, hook: Callable) -> Any:
        """Calls ``hook(optimizer, args, kwargs)`` before every step; it may return new (args, kwargs).
        The first of ``args`` is the optimizer.
        """
        return self._hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> Any:
        """Calls ``hook(optimizer, args, kwargs)`` after every step."""
        return self._hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls ``hook(optimizer)`` before state_dict is taken."""
        return self._hook(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls ``hook(optimizer, state_dict)`` afterwards; a return value that is not None replaces the
        dict.
        """
        return self._hook(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls ``hook(optimizer, state_dict)`` before loading; a return value that is not None replaces
        the dict.
        """
        return self._hook(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls ``hook(optimizer)`` after loading."""
        return self._hook(self._load_state_dict_post_hooks, hook, prepend)

    # ---- state, in PyTorch's format: parameters are numbered in the order of the groups

    def state_dict(self) -> dict[str, Any]:
        """Returns {"state": {number: state of a parameter}, "param_groups": [options, with "params" as
        numbers]}.
        """
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append(
                {
                    **{k: v for k, v in group.items() if k != "params"},
                    "params": [numbers[id(p)] for p in group["params"]],
                }
            )
        state = {numbers[id(p)]: self._export_state(s) for p, s in self.state.items() if id(p) in numbers}
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._state_dict_post_hooks.values()):
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state_dict of an optimizer whose parameters have the same number and order."""
        state_dict = dict(state_dict)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved_groups = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved_groups)}, but "
                f"the optimizer has {len(groups)}"
            )
        for k, (group, saved) in enumerate(zip(groups, saved_groups)):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: group {k} has "
                    f"{len(saved['params'])} parameters, the optimizer's has {len(group['params'])}"
                )
        numbers = chain.from_iterable(g["params"] for g in saved_groups)
        by_number = dict(zip(numbers, chain.from_iterable(g["params"] for g in groups)))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for number, saved in state_dict["state"].items():
            if number in by_number:
                p = by_number[number]
                state[p] = self._import_state({k: self._like_parameter(k, v, p) for k, v in saved.items()})
            else:
                state[number] = saved
        self.state = state
        self.param_groups = [
            {**saved, "params": group["params"]} for group, saved in zip(groups, saved_groups)
        ]
        for group in self.param_groups:
            for key, default in self.defaults.items():
                group.setdefault(key, default)
        for hook in list(self._load_state_dict_post_hooks.values()):
            hook(self)

    def _like_parameter(self, key: str, value: Any, p: Tensor) -> Any:
        """Returns a copy of a loaded value; tensors get the parameter's dtype, except for counters."""
        if not isinstance(value, Tensor):
            return deepcopy(value)
        value = value.detach()
        keep = key in self._numbers or not (p.is_floating_point() and value.is_floating_point())
        return value.clone() if keep or value.dtype == p.dtype else value.to(p.dtype)

    def _export_state(self, state: Any) -> Any:
        return dict(state) if isinstance(state, dict) else state

    def _import_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return state


class GroupOptimizer(Optimizer):
    """An optimizer that steps group by group; subclasses define ``_step_group``."""

    def _step_group(self, group: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def _trace_group(self, group: dict[str, Any]) -> None:
        """Steps a group in a function that is traced."""
        self._step_group(group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self._loss_of(closure)
        self._step_groups()
        return loss

    def _step_groups(self) -> None:
        step_group = self._trace_group if _C.is_tracing() else self._step_group
        with _C.GradMode(False):
            for group in self.param_groups:
                step_group(group)


def check_options(**options: tuple[Any, bool]) -> None:
    """Raises ValueError at the first option whose condition does not hold: name=(value, condition)."""
    for name, (value, valid) in options.items():
        if not valid:
            what = "learning rate" if name == "lr" else f"{name} value"
            raise ValueError(f"Invalid {what}: {value}")


def check_betas(betas: tuple[float, float]) -> None:
    """Raises ValueError unless both are in [0, 1)."""
    if len(betas) != 2:
        raise IndexError(f"betas must be a pair of numbers, got {betas}")
    for k, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {k}: {beta}")


def check_implementation(optimizer: str, options: dict[str, Any]) -> None:
    """Accepts PyTorch's options for the implementation: there is only one here, and it is fused."""
    if options.get("differentiable"):
        if options.get("fused"):
            raise RuntimeError("`fused` does not support `differentiable`")
        raise NotImplementedError(
            f"{optimizer}: differentiable=True is not supported: steps are not recorded\n"
            "  hint: compute the updated values yourself, from parameters and autograd.grad"
        )
    if options.get("fused") and options["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def rate(lr: Any, name: str = "lr") -> Any:
    """Returns an option as a number; a tensor of one element stays one in traced functions."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element")
        if _C.is_tracing():
            return lr.reshape(()).double()
    return float(lr)


def at_least(x: Any, least: float) -> Any:
    """Returns the larger one; ``x`` may be a tensor, in traced functions."""
    return x.clamp(min=least) if isinstance(x, Tensor) else max(x, least)


def smaller(x: Any, y: Any) -> Any:
    """Returns the smaller one of two numbers, which may be tensors in traced functions."""
    if isinstance(x, Tensor):
        return x.clamp(max=y) if not isinstance(y, Tensor) else _C.functions.minimum(x, y)
    return y.clamp(max=x) if isinstance(y, Tensor) else min(x, y)


def square_root(x: Any) -> Any:
    """Returns the root of a number, which may be a tensor in traced functions."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def parameters_by_layout(
    group: dict[str, Any], optimizer: str, takes_sparse: bool = True
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Returns parameters with a dense gradient, these gradients, and parameters with a sparse one (if
    supported).
    """
    dense, grads, sparse = _C.parameters_by_layout(optimizer, group["params"])
    if sparse and not takes_sparse:
        raise RuntimeError(
            f"{optimizer} does not support sparse gradients, please consider SparseAdam instead"
        )
    return dense, grads, sparse


def with_values(grad: Tensor, values: Tensor) -> Tensor:
    """Returns a sparse tensor with the indices of a coalesced gradient."""
    return _C.ops._sparse_with_values(grad, values)
