"""Checkpoints trade compute for memory: the values that a part of a model would save for backward are
dropped and recomputed when they are needed.
"""

from __future__ import annotations

import contextlib
import enum
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from .._modes import enable_grad, no_grad
from .._queries import get_rng_state, set_rng_state
from ..autograd import Function, backward
from ..autograd.graph import saved_tensors_hooks
from ..overrides import TorchFunctionMode
from ._pytree import tree_leaves, tree_map_only

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Tensor = _C.Tensor


class CheckpointError(RuntimeError):
    """Raised if the second run of a function saves other tensors than the first."""


class _Stop(Exception):
    """Raised to end the second run when all needed tensors are recomputed."""


_early_stop: list[bool] = []


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the ``with`` block, sets whether recomputation stops at the last tensor that is needed (the
    default).
    """
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Has no effect: errors of checkpoints always contain all available information."""
    yield


class DefaultDeviceType:
    """The device type whose random state a checkpoint saves besides the CPU's."""

    _default = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._default = device

    @staticmethod
    def get_device_type() -> str:
        return DefaultDeviceType._default


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Returns the GPUs among the tensors' devices and their random states: there are none."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Restores the random states of GPUs."""
    for _ in devices:
        raise AssertionError("Facula not compiled with CUDA enabled")


def check_backward_validity(inputs: Any) -> None:
    """Warns if no input requires a gradient: a reentrant checkpoint then produces none."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def use_reentrant_is_missing() -> str:
    """Returns the warning of a checkpoint without ``use_reentrant=``."""
    return (
        f"{_C.package_name()}.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
        "use_reentrant=False "
        "is recommended, but if you need to preserve the current default behavior, you can pass "
        "use_reentrant=True."
    )


def check_options(
    use_reentrant: bool, kwargs: dict, context_fn: Any, debug: bool, determinism_check: str
) -> None:
    """Raises ValueError for options of a checkpoint that do not fit each other."""
    if use_reentrant and kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if not use_reentrant and determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of 'default', 'none' but got {determinism_check}")


def noop_context_fn() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Surroundings:
    """The random state and autocast settings of the first run, restored for the second."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self.rng = get_rng_state() if preserve_rng_state else None
        self.autocast = _C.autocast_state()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        autocast, rng = _C.autocast_state(), None
        _C.set_autocast(*self.autocast)
        if self.rng is not None:
            rng = get_rng_state()
            set_rng_state(self.rng)
        try:
            yield
        finally:
            _C.set_autocast(*autocast)
            if rng is not None:
                set_rng_state(rng)


def detach_variable(inputs: tuple) -> tuple:
    """Returns ``inputs`` with tensors detached to leaves with the same ``requires_grad``."""
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


class CheckpointFunction(Function):
    """The reentrant checkpoint: runs the function without recording, and a nested backward inside of
    backward.
    """

    @staticmethod
    def forward(ctx: Any, run_function: Callable, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state)
        ctx.tensors_at = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*(args[k] for k in ctx.tensors_at))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        if _C.backward_restricted():
            raise RuntimeError(
                f"When use_reentrant=True, {_C.package_name()}.utils.checkpoint is incompatible with "
                f".grad() or passing an "
                "`inputs` parameter to .backward(). To resolve this error, you can set use_reentrant=False."
            )
        inputs = list(ctx.others)
        for k, t in zip(ctx.tensors_at, ctx.saved_tensors):
            inputs[k] = t
        inputs = detach_variable(tuple(inputs))
        with ctx.surroundings.again(), enable_grad():
            outputs = ctx.run_function(*inputs)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        wanted = [(y, g) for y, g in zip(outputs, grads) if isinstance(y, Tensor) and y.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([y for y, _ in wanted], [g for _, g in wanted])
        return None, None, *(x.grad if isinstance(x, Tensor) else None for x in inputs)


class _KeepInputs(Function):
    """Saves its inputs, through the hooks of an outer checkpoint if there is one."""

    @staticmethod
    def forward(ctx: Any, dummy: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return _C.functions.empty(0)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise AssertionError("no gradient comes here")


class _Slot:
    """Stands for a saved tensor: its number within the run, and its metadata."""

    __slots__ = ("__weakref__", "number", "was")

    def __init__(self, number: int, t: Tensor) -> None:
        self.number = number
        self.was = _facts(t)


def _facts(t: Tensor) -> tuple:
    return tuple(t.shape), t.dtype, t.device


class _Frame:
    """One call of the non-reentrant checkpoint."""

    def __init__(
        self, function: Callable, args: tuple, kwargs: dict, preserve: bool, again: Any, check: bool
    ) -> None:
        self.function, self.kwargs, self.again, self.check = function, kwargs, again, check
        self.surroundings = _Surroundings(preserve)
        self.early_stop = _early_stop[-1] if _early_stop else True
        self.tensors_at = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
        self.others = [None if isinstance(x, Tensor) else x for x in args]
        with enable_grad():
            dummy = _C.functions.empty(0, requires_grad=True)
            self.inputs = _KeepInputs.apply(dummy, *(args[k] for k in self.tensors_at))
        self.slots: list[weakref.ref[_Slot]] = []
        self.values: weakref.WeakKeyDictionary[_Slot, Tensor] = weakref.WeakKeyDictionary()
        self.complete = False  # whether the first run reached its end
        # tensors that a call saves, recorded for a selective checkpoint
        self.packed: list[Tensor] | None = None
        self.count = 0  # number of tensors saved in the second run

    def pack(self, t: Tensor) -> _Slot:
        if self.packed is not None:
            self.packed.append(t)
        slot = _Slot(len(self.slots), t)
        self.slots.append(weakref.ref(slot))
        return slot

    def unpack(self, slot: _Slot) -> Tensor:
        if slot not in self.values:
            self.run_again()
        if slot not in self.values:
            raise CheckpointError(
                f"{_C.package_name()}.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.slots)}"
            )
        t = self.values.pop(slot)
        if self.check and _facts(t) != slot.was:
            raise CheckpointError(
                f"{_C.package_name()}.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than "
                f"during the forward pass.\ntensor at position {slot.number}:\nsaved metadata: {slot.was}\n"
                f"recomputed metadata: {_facts(t)}"
            )
        return t

    def pack_again(self, t: Tensor) -> Tensor:
        slot = self.slots[self.count]() if self.count < len(self.slots) else None
        self.count += 1
        if slot is not None:
            self.values[slot] = t
        if self.early_stop and self.complete and self.count == len(self.slots):
            raise _Stop
        return t

    def run_again(self) -> None:
        args = list(self.others)
        for k, t in zip(self.tensors_at, self.inputs.grad_fn.saved_tensors):
            args[k] = t
        self.count = 0

        def unpack(t: Tensor) -> Tensor:
            return t

        with self.surroundings.again(), self.again, enable_grad(), contextlib.suppress(_Stop):
            with saved_tensors_hooks(self.pack_again, unpack):
                self.function(*args, **self.kwargs)
            if self.check and self.complete and self.count != len(self.slots):
                raise CheckpointError(
                    f"{_C.package_name()}.utils.checkpoint: A different number of tensors was saved "
                    "during the original forward "
                    f"and recomputation.\nNumber of tensors saved during forward: {len(self.slots)}\n"
                    f"Number of tensors saved during recomputation: {self.count}"
                )


class CheckpointPolicy(enum.Enum):
    """Whether a selective checkpoint saves a call's results or recomputes them."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class SelectiveCheckpointContext:
    """The first argument of a policy: which run calls it. Policies may set attributes of their own."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


def _overload(func: Callable, args: tuple) -> Any:
    """Returns the overload of a call as policies name it, ``ops.aten.mm.default``, or the function if it
    has none.
    """
    from .. import ops

    name = getattr(func, "__name__", "")
    if name == "matmul":
        kind = tuple(a.dim() for a in args[:2] if isinstance(a, Tensor))
        name = {(2, 2): "mm", (3, 3): "bmm", (2, 1): "mv", (1, 1): "dot"}.get(kind, name)
    elif name == "linear":
        name = "addmm" if len(args) > 2 and args[2] is not None else "mm"
    packet = getattr(ops.aten, name, None)
    if packet is None:
        return func
    return getattr(packet, "Tensor" if "Tensor" in packet.overloads() else packet.overloads()[0], func)


def _place(t: Tensor) -> tuple:
    return t.data_ptr(), tuple(t.shape), t.stride(), t.dtype


class _SavedCall:
    """A call of the first run: its results, and the origin of each tensor that it saved."""

    def __init__(self, args: Any, result: Any, saved: list[Tensor]) -> None:
        self.result = tree_map_only(Tensor, Tensor.detach, result)
        self.wanted = [t.requires_grad for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.versions = [t._version for t in self._tensors()]
        argument_at = {_place(t): k for k, t in enumerate(tree_leaves(args)) if isinstance(t, Tensor)}
        result_at = {_place(t): k for k, t in enumerate(self._tensors())}
        self.saved: list[tuple[str, Any]] = []
        for t in saved:
            place = _place(t)
            if place in argument_at:
                self.saved.append(("argument", argument_at[place]))
            elif place in result_at:
                self.saved.append(("result", result_at[place]))
            else:
                self.saved.append(("tensor", t))

    def _tensors(self) -> list[Tensor]:
        return [t for t in tree_leaves(self.result) if isinstance(t, Tensor)]

    def changed(self) -> bool:
        return [t._version for t in self._tensors()] != self.versions

    def again(self, args: Any, frame: _Frame) -> Any:
        """Returns the results, after registering for the second run the tensors that the call saved."""
        leaves, results, wanted = tree_leaves(args), self._tensors(), iter(self.wanted)
        for kind, what in self.saved:
            frame.pack_again(
                leaves[what] if kind == "argument" else results[what] if kind == "result" else what
            )
        return tree_map_only(Tensor, lambda t: t.detach().requires_grad_(next(wanted)), self.result)


class _Selective(TorchFunctionMode):
    """In the first run, keeps the results of calls that the policy selects; in the second, returns them."""

    frame: _Frame

    def __init__(
        self, policy: Callable, saved_calls: dict[Any, list[_SavedCall | None]], again: bool, changes: bool
    ) -> None:
        self.policy, self.saved_calls, self.again, self.changes = policy, saved_calls, again, changes
        self.context = SelectiveCheckpointContext(is_recompute=again)
        self.next: dict[Any, int] = {}

    def __enter__(self) -> _Selective:
        self.next = {}
        super().__enter__()
        return self

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name.endswith("_") or "out" in kwargs:  # writes happen in both runs
            return func(*args, **kwargs)
        op = _overload(func, args)
        if self.again:
            return self._replay(op, func, args, kwargs)
        policy = self.policy(self.context, op, *args, **kwargs)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        if policy in (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD):
            raise NotImplementedError(f"selective checkpoint: {policy.name} on a processor has nowhere to go")
        calls = self.saved_calls.setdefault(op, [])
        if policy not in _KEPT:
            calls.append(None)
            return func(*args, **kwargs)
        self.frame.packed = []
        try:
            result = func(*args, **kwargs)
            calls.append(_SavedCall((args, kwargs), result, self.frame.packed))
        finally:
            self.frame.packed = None
        return result

    def _replay(self, op: Any, func: Callable, args: tuple, kwargs: dict) -> Any:
        """Returns the saved result of the same call of the first run, if there is one."""
        number = self.next.get(op, 0)
        self.next[op] = number + 1
        if number >= len(self.saved_calls.get(op, ())):
            raise RuntimeError(f"{op} encountered during backward, but not found in storage")
        saved_call = self.saved_calls[op][number]
        if saved_call is None:
            return func(*args, **kwargs)
        if saved_call.changed() and not self.changes:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return saved_call.again((args, kwargs), self.frame)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Creates the two contexts of a checkpoint that keeps some results; pass it, through
    functools.partial, as ``context_fn``.

    ``policy(ctx, op, *args, **kwargs)`` returns a CheckpointPolicy (or a bool: whether to save) for each
    call of a function of tensors in the program; ``op`` is an overload such as
    ``facula.ops.aten.mm.default``. A list of overloads saves their results.
    """
    from .._ops import OpOverload

    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, OpOverload):
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}."
                )
        named = list(policy_fn_or_list)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in named else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    saved_calls: dict[Any, list[_SavedCall | None]] = {}
    return (
        _Selective(policy, saved_calls, False, allow_cache_entry_mutation),
        _Selective(policy, saved_calls, True, allow_cache_entry_mutation),
    )


def _traced(function: Callable, args: tuple, kwargs: dict, context_fn: Any) -> Any:
    """Records the function's calls in the graph, marked so that their values are not saved for the
    backward pass.
    """
    if context_fn is not noop_context_fn:
        raise NotImplementedError(
            "checkpoint: context_fn cannot be traced yet; without it a traced checkpoint decides by itself"
        )
    outer = _C.enter_checkpoint()
    try:
        return function(*args, **kwargs)
    finally:
        _C.leave_checkpoint(outer)


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Returns ``function(*args, **kwargs)``; intermediate values are not saved but recomputed in
    backward.

    ``use_reentrant=False`` is recommended: it supports keyword arguments, nesting, ``autograd.grad`` and
    inputs without gradients, and stops as early as possible. ``preserve_rng_state=False`` does not
    restore the random state for the second run; ``context_fn`` returns a context manager for either run.
    """
    if use_reentrant is None:
        warnings.warn(use_reentrant_is_missing(), stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if _C.is_tracing():
        required = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        with contextlib.nullcontext() if required or not use_reentrant else no_grad():
            return _traced(function, args, kwargs, context_fn)
    check_options(use_reentrant, kwargs, context_fn, debug, determinism_check)
    if use_reentrant:
        return CheckpointFunction.apply(function, preserve, *args)
    first, again = context_fn()
    if not _C.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, preserve, again, determinism_check == "default")
    frame.early_stop = frame.early_stop and early_stop
    for context in (first, again):
        if isinstance(context, _Selective):
            context.frame = frame
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Runs the functions (or a Sequential) one after the other, in ``segments`` parts; all but the last
    part are checkpointed.
    """
    if use_reentrant is None:
        warnings.warn(
            f"{_C.package_name()}.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should "
            "be passed explicitly.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(start: int, end: int) -> Callable:
        def f(x: Any) -> Any:
            for step in steps[start:end]:
                x = step(x)
            return x

        return f

    size = len(steps) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(end, len(steps))(input)
