"""The recorded graph: nodes and edges, and hooks on saved tensors and on several gradients at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import _C

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

Tensor = _C.Tensor
Node = _C.Node


class GradientEdge(NamedTuple):
    """The destination of a tensor's gradient: result ``output_nr`` of ``node``."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns the edge of a tensor that requires gradients. ``autograd.grad`` and ``backward`` accept it
    in place of the tensor.
    """
    return GradientEdge(*_C.gradient_edge(tensor))


def increment_version(tensor: Any) -> None:
    """Marks a tensor, or each of several, as written in place."""
    for t in [tensor] if isinstance(tensor, Tensor) else tensor:
        _C.increment_version(t)


class saved_tensors_hooks:
    """Within the ``with`` block, every tensor that is saved for backward is replaced by the result of
    ``pack_hook(tensor)``, any object; backward restores the tensor by ``unpack_hook(object)``.

    >>> with facula.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
    ...     y = (facula.ones(2, requires_grad=True) ** 2).sum()
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _C.push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        _C.pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in the CPU's memory, and moves them back to their device for backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> tuple[Any, Tensor]:
            return t.device, t.cpu()

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, t = packed
            return t.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Within the ``with`` block, copies are saved for backward, so that the originals may be written in
    place.

    >>> with facula.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = facula.ones(2, requires_grad=True)
    ...     y = x.clone()
    ...     z = (y * y).sum()
    ...     _ = y.mul_(3)
    ...     z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        yield


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the ``with`` block, hooks on saved tensors raise ``error_message``."""
    before = _C.saved_tensors_hooks_disabled()
    _C.set_saved_tensors_hooks_disabled(error_message)
    try:
        yield
    finally:
        _C.set_saved_tensors_hooks_disabled(before)


class _Handles:
    """Several hooks that are removed together."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _Handles:
    """Calls ``fn`` once per backward: with the gradients of all ``tensors`` (None for those without) when
    the last one is computed, or with the first one (``mode="any"``).
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    if mode == "any":
        last: list[int] = []

        def first(grad: Tensor) -> None:
            task = _C.backward_number()
            with lock:
                if last and last[0] == task:
                    return
                last[:] = [task]
            fn(grad)

        return _Handles([t.register_hook(first) for t in tensors])

    # A tensor holds the hooks, so these must not hold the tensor.
    nodes, count = [_C.gradient_edge(t)[0] for t in tensors], len(tensors)
    arrived: dict[int, list] = {}
    expected: dict[int, int] = {}

    def hook(k: int) -> Callable[[Tensor], None]:
        def f(grad: Tensor) -> None:
            task = _C.backward_number()
            with lock:
                grads = arrived.setdefault(task, [None] * count)
                if task not in expected:
                    expected[task] = sum(_C.backward_runs(n) for n in nodes)
                grads[k] = grad
                expected[task] -= 1
                done = expected[task] == 0
                if done:
                    del arrived[task], expected[task]
            if done:
                fn(grads)

        return f

    return _Handles([t.register_hook(hook(k)) for k, t in enumerate(tensors)])
