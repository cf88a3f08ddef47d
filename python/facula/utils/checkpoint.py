"""Memory for time: what a part of a model saves for backward is forgotten, and computed again when it is
needed.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from .._functions import get_rng_state, set_rng_state
from .._modes import enable_grad, no_grad
from ..autograd import Function, backward
from ..autograd.graph import saved_tensors_hooks

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "DefaultDeviceType",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Tensor = _C.Tensor


class CheckpointError(RuntimeError):
    """The second run of a function saved something else than the first."""


class _Stop(Exception):
    """All that is needed was computed again."""


_early_stop: list[bool] = []


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the ``with`` block: does recomputing stop at the last tensor needed? (It does by default.)"""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Errors of checkpoints say all that is known in any case; within the block nothing else is said."""
    yield


class DefaultDeviceType:
    """The type of device whose random state a checkpoint keeps beside the CPU's."""

    _default = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._default = device

    @staticmethod
    def get_device_type() -> str:
        return DefaultDeviceType._default


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs among the tensors' devices, and their random states: there are none."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Gives GPUs their random states back."""
    for _ in devices:
        raise AssertionError("Facula not compiled with CUDA enabled")


def check_backward_validity(inputs: Any) -> None:
    """Warns if no input requires a gradient: the reentrant kind then gives none."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def noop_context_fn() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Surroundings:
    """The random state and autocast's settings of the first run, for the second."""

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
    """The tensors among ``inputs`` as leaves that require gradients as they did."""
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


class CheckpointFunction(Function):
    """The reentrant kind: runs the function off the tape, and a backward of its own inside of backward."""

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
                "When use_reentrant=True, facula.utils.checkpoint is incompatible with .grad() or passing an "
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
    """Stands for a saved tensor: which of its run, and what it was."""

    __slots__ = ("__weakref__", "number", "was")

    def __init__(self, number: int, t: Tensor) -> None:
        self.number = number
        self.was = _facts(t)


def _facts(t: Tensor) -> tuple:
    return tuple(t.shape), t.dtype, t.device


class _Frame:
    """One call of the non-reentrant kind."""

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
        self.complete = False  # did the first run reach its end?

    def pack(self, t: Tensor) -> _Slot:
        slot = _Slot(len(self.slots), t)
        self.slots.append(weakref.ref(slot))
        return slot

    def unpack(self, slot: _Slot) -> Tensor:
        if slot not in self.values:
            self.run_again()
        if slot not in self.values:
            raise CheckpointError(
                "facula.utils.checkpoint: A different number of tensors was saved during the original "
                "forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.slots)}"
            )
        t = self.values.pop(slot)
        if self.check and _facts(t) != slot.was:
            raise CheckpointError(
                "facula.utils.checkpoint: Recomputed values for the following tensors have different "
                "metadata than "
                f"during the forward pass.\ntensor at position {slot.number}:\nsaved metadata: {slot.was}\n"
                f"recomputed metadata: {_facts(t)}"
            )
        return t

    def run_again(self) -> None:
        args = list(self.others)
        for k, t in zip(self.tensors_at, self.inputs.grad_fn.saved_tensors):
            args[k] = t
        count = 0

        def pack(t: Tensor) -> Any:
            nonlocal count
            slot = self.slots[count]() if count < len(self.slots) else None
            count += 1
            if slot is not None:
                self.values[slot] = t
            if self.early_stop and self.complete and count == len(self.slots):
                raise _Stop
            return t

        def unpack(t: Tensor) -> Tensor:
            return t

        with self.surroundings.again(), self.again, enable_grad(), contextlib.suppress(_Stop):
            with saved_tensors_hooks(pack, unpack):
                self.function(*args, **self.kwargs)
            if self.check and self.complete and count != len(self.slots):
                raise CheckpointError(
                    "facula.utils.checkpoint: A different number of tensors was saved during the original "
                    "forward "
                    f"and recomputation.\nNumber of tensors saved during forward: {len(self.slots)}\n"
                    f"Number of tensors saved during recomputation: {count}"
                )


def _traced(function: Callable, args: tuple, kwargs: dict, context_fn: Any) -> Any:
    """The function's calls in the graph, marked: what they compute is not kept for the backward pass."""
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
    """``function(*args, **kwargs)``, whose intermediate values are not kept but computed again in backward.

    ``use_reentrant=False`` is the better kind: it knows keyword arguments, nesting, ``autograd.grad``, inputs
    without gradients and stops as soon as it can. ``preserve_rng_state=False`` leaves the random state of the
    second run alone; ``context_fn`` gives a context manager for either run.
    """
    if use_reentrant is None:
        warnings.warn(
            "facula.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "use_reentrant=False "
            "is recommended, but if you need to preserve the current default behavior, you can pass "
            "use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if _C.is_tracing():
        return _traced(function, args, kwargs, context_fn)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of 'default', 'none' but got {determinism_check}")
    first, again = context_fn()
    if not _C.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, preserve, again, determinism_check == "default")
    frame.early_stop = frame.early_stop and early_stop
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """The functions (or a Sequential) one after the other, in ``segments`` parts; all but the last are
    checkpointed.
    """
    if use_reentrant is None:
        warnings.warn(
            "facula.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
            "explicitly.",
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
