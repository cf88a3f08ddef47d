"""Reducer: sums the gradients of a module over ranks while backward still runs.

Gradients are grouped into buckets by dtype, in the order in which they are expected. Each bucket is one flat
tensor. When the last gradient of a bucket has been accumulated, the bucket's reduction starts; reductions
start in the order of the buckets on all ranks. The last gradient of an iteration waits for all of them.
"""

from __future__ import annotations

import enum
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from . import _collectives as collective
from ._constants import ReduceOp
from ._process_group import _Options

__all__ = ["BuiltinCommHookType", "GradBucket", "Reducer"]

Tensor = _C.Tensor
MEGABYTE = 1024 * 1024


class BuiltinCommHookType(enum.Enum):
    ALLREDUCE = 0
    FP16_COMPRESS = 1


class GradBucket:
    """The gradients of some parameters in one flat tensor, as communication hooks see them."""

    def __init__(
        self, index: int, buffer: Tensor, gradients: list[Tensor], parameters: list[Tensor], last: bool
    ):
        self._index, self._buffer, self._gradients = index, buffer, gradients
        self._parameters, self._last = parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """Returns views of the buffer with the shapes of the parameters."""
        return self._gradients

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def is_last(self) -> bool:
        """Returns whether this is the last bucket to be reduced in the iteration."""
        return self._last


class _Bucket:
    def __init__(self, indices: list[int], params: list[Tensor]) -> None:
        self.indices, self.params = indices, params
        self.flat = _C.functions.zeros(sum(p.numel() for p in params), dtype=params[0].dtype)
        self.views, begin = [], 0
        for p in params:
            dense = p.is_contiguous() or p.is_non_overlapping_and_dense()
            stride = p.stride() if dense else _C.functions.empty(p.shape).stride()
            self.views.append(self.flat.as_strided(p.shape, stride, begin))
            begin += p.numel()
        self.pending = len(params)
        self.work: Any = None
        self.future: Any = None


def assignment(params: list[Tensor], order: Iterable[int], caps: list[int]) -> list[list[int]]:
    """Divides parameters in ``order`` into buckets of one dtype. ``caps`` are the sizes in bytes at which the
    first, second, ... bucket is complete; the last one counts for all further buckets.
    """
    buckets: list[list[int]] = []
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    counts: dict[Any, int] = {}
    for i in order:
        p = params[i]
        indices, size = open_buckets.get(p.dtype, ([], 0))
        indices.append(i)
        size += p.numel() * p.itemsize
        cap = caps[min(counts.get(p.dtype, 0), len(caps) - 1)]
        if size >= cap:
            buckets.append(indices)
            counts[p.dtype] = counts.get(p.dtype, 0) + 1
            open_buckets.pop(p.dtype, None)
        else:
            open_buckets[p.dtype] = (indices, size)
    buckets.extend(indices for indices, _ in open_buckets.values())
    return buckets


def _tensors(value: Any) -> Iterable[Tensor]:
    """The tensors in the output of a module."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif isinstance(value, (list, tuple, set)):
        for v in value:
            yield from _tensors(v)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))
    elif hasattr(value, "local_value"):  # an RRef
        yield from _tensors(value.local_value())


class Reducer:
    def __init__(
        self,
        params: list[Tensor],
        names: list[str],
        group: Any,
        caps: list[int],
        find_unused: bool = False,
        as_view: bool = False,
        skip_unused: bool = False,
    ) -> None:
        self.params, self.names, self.group, self.caps = params, names, group, caps
        self.find_unused, self.as_view, self.skip_unused = find_unused, as_view, skip_unused
        self.static = False
        self.hook: Callable[..., Any] | None = None
        self.hook_state: Any = None
        self.divisor = 0  # 0: the number of ranks
        self.expecting = self.started = self.rebuilt = False
        self.ready: list[bool] = [False] * len(params)
        self.used: Tensor | None = None
        self.unused: list[int] = []
        self.used_without_sync: set[int] = set()  # since the last reduction
        self.static_unused: list[int] | None = None
        self.static_counts: Tensor | None = None
        self.order: list[int] = []
        self.iterations = 0
        self.times: dict[str, int] = {}
        self._pending_order: list[int] | None = None
        self._build(assignment(params, reversed(range(len(params))), caps))
        self._handles = []
        me = weakref.ref(self)
        for i, p in enumerate(params):

            def accumulated(_: Any, i: int = i) -> None:
                if (reducer := me()) is not None:
                    reducer._accumulated(i)

            self._handles.append(p.register_post_accumulate_grad_hook(accumulated))

    def remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _build(self, indices: list[list[int]]) -> None:
        with _C.GradMode(False):
            self.buckets = [_Bucket(group, [self.params[i] for i in group]) for group in indices]
        self.place = {i: (b, k) for b in self.buckets for k, i in enumerate(b.indices)}

    # ---- before backward

    def prepare(self, output: Any, sync: bool) -> None:
        """Called after forward: the next backward reduces gradients if ``sync``."""
        self.expecting = sync
        if sync:
            self.prepare_for_backward(output)

    def prepare_for_backward(self, output: Any) -> None:
        """Makes the next backward reduce gradients. Programs call it to end an accumulation early."""
        self.expecting = True
        self.unused, self.started = [], False
        self.ready = [False] * len(self.params)
        self.next = 0
        self.order = []
        for b in self.buckets:
            b.pending, b.work, b.future = len(b.params), None, None
        if self.static:
            if self.static_unused is None:
                self.static_unused = self._unreached(output)
            self.unused = self.static_unused
        elif self.find_unused:
            self.unused = self._unreached(output)
        self.times["forward_compute_time_end"] = time.monotonic_ns()

    def _unreached(self, output: Any) -> list[int]:
        """Returns the parameters that the graph of the output does not reach."""
        missing = {id(p): i for i, p in enumerate(self.params)}
        stack = []
        for t in _tensors(output):
            if t.grad_fn is not None:
                stack.append(t.grad_fn)
            elif t.requires_grad:
                missing.pop(id(t), None)
        seen = set()
        while stack and missing:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                missing.pop(id(variable), None)
            stack.extend(n for n, _ in node.next_functions if n is not None)
        return sorted(missing.values())

    def check_finished(self) -> None:
        """Raises if the last backward left gradients of some parameters out."""
        if not self.started:
            return
        self.started = False
        left = [i for i, there in enumerate(self.ready) if not there]
        advice = (
            "You can enable unused parameter detection by passing the keyword argument "
            "`find_unused_parameters=True` to "
            "`torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all `forward` function "
            "outputs "
            "participate in calculating loss. "
        )
        if self.find_unused:
            advice = (
                "Since `find_unused_parameters=True` is enabled, this likely  means that not all `forward` "
                "outputs "
                "participate in computing loss. You can fix this by making sure all `forward` function "
                "outputs "
                "participate in calculating loss. "
            )
        rank = self.group.rank()
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. This "
            "error indicates "
            f"that your module has parameters that were not used in producing loss. {advice}"
            f"\nParameter indices which did not receive grad for rank {rank}: {' '.join(map(str, left))}"
            f"\nParameters which did not receive grad for rank {rank}: "
            f"{', '.join(self.names[i] for i in left)}"
        )

    # ---- during backward

    def _accumulated(self, i: int) -> None:
        if not self.expecting:
            self.used_without_sync.add(i)
            return
        if not self.started:
            self.started = True
            self.times["backward_compute_time_start"] = time.monotonic_ns()
            for u in self.unused:
                self._mark(u, used=False)
        self._mark(i, used=True)

    def _mark(self, i: int, used: bool) -> None:
        if self.ready[i]:
            if used and self.static:
                return  # the tape accumulates again, as with nested checkpoints
            raise RuntimeError(
                "Expected to mark a variable ready only once. This error is caused by one of the following "
                "reasons: 1) "
                "Use of a module parameter outside the `forward` function. 2) Reused parameters in "
                "multiple reentrant "
                f"backward passes.\nParameter at index {i} with name {self.names[i]} has been marked as "
                "ready twice."
            )
        self.ready[i] = True
        self.order.append(i)
        bucket, k = self.place[i]
        view, grad = bucket.views[k], self.params[i].grad
        with _C.GradMode(False):
            if grad is None or not used:
                if grad is not None and not used:
                    view.copy_(grad) if grad.data_ptr() != view.data_ptr() else None
                else:
                    view.zero_()
            elif grad.is_sparse:
                raise RuntimeError(
                    "DistributedDataParallel: sparse gradients are not supported; use dense ones"
                )
            elif grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
                if self.as_view:
                    self.params[i].grad = view
        bucket.pending -= 1
        while self.next < len(self.buckets) and not self.buckets[self.next].pending:
            self._launch(self.next)
            self.next += 1
        if self.next == len(self.buckets):
            self._finish()

    def _launch(self, index: int) -> None:
        bucket = self.buckets[index]
        if index == 0:
            self.times["backward_comm_time_start"] = time.monotonic_ns()
        last = index == len(self.buckets) - 1
        if self.hook is not None:
            grads = GradBucket(index, bucket.flat, bucket.views, bucket.params, last)
            bucket.future = self.hook(self.hook_state, grads)
            return
        op = ReduceOp.AVG
        if self.divisor:
            with _C.GradMode(False):
                bucket.flat.div_(self.divisor)
            op = ReduceOp.SUM
        bucket.work = self.group.allreduce([bucket.flat], _Options(reduceOp=op))

    def _all_used(self) -> Tensor | None:
        """Returns for each parameter how many ranks have used it, if that may be none."""
        if not (self.find_unused or self.static) or self.skip_unused:
            return None
        if self.static and self.static_counts is not None:
            return self.static_counts
        unused = set(self.unused) - self.used_without_sync
        counts = [0 if i in unused else 1 for i in range(len(self.params))]
        used = _C.tensor(counts, dtype=_C.int32)
        collective.all_reduce(used, group=self.group)
        self.static_counts = used
        return used

    def _finish(self) -> None:
        """Waits for the reductions and writes the gradients."""
        self.expecting = self.started = False
        self.times["backward_compute_time_end"] = time.monotonic_ns()
        used = self._all_used()
        counts = None if used is None else used.tolist()
        with _C.GradMode(False):
            for bucket in self.buckets:
                self._take_result(bucket)
                for i, p, view in zip(bucket.indices, bucket.params, bucket.views):
                    if counts is not None and not counts[i]:
                        if p.grad is not None and self.as_view and p.grad.data_ptr() == view.data_ptr():
                            p.grad = view
                        continue  # no rank has used it: the gradient stays
                    if self.as_view:
                        if p.grad is None or p.grad.data_ptr() != view.data_ptr():
                            p.grad = view
                    elif p.grad is None:
                        p.grad = view.clone()
                    else:
                        p.grad.copy_(view)
        self.times["backward_comm_time_end"] = time.monotonic_ns()
        self.iterations += 1
        self.used_without_sync.clear()
        if not self.rebuilt and not self.find_unused and len(self.order) == len(self.params):
            self._pending_order = list(self.order)

    def _take_result(self, bucket: _Bucket) -> None:
        if bucket.future is not None:
            result = bucket.future.wait()
            result = result[0] if isinstance(result, (list, tuple)) else result
            if result.data_ptr() != bucket.flat.data_ptr():
                bucket.flat.copy_(result.reshape(-1))
        elif bucket.work is not None:
            bucket.work.wait()
        bucket.work = bucket.future = None

    # ---- between iterations

    def rebuild(self) -> bool:
        """Once: puts the buckets in the order in which rank 0 saw the gradients."""
        if self.rebuilt or self._pending_order is None:
            return False
        order = _C.tensor(self._pending_order, dtype=_C.int64)
        collective.broadcast(order, group=self.group, group_src=0)
        self._adopt(order.tolist())
        return True

    def _adopt(self, order: list[int]) -> None:
        self._pending_order, self.rebuilt = None, True
        indices = assignment(self.params, order, self.caps)
        if indices == [b.indices for b in self.buckets]:
            return
        old = self.place
        with _C.GradMode(False):
            grads = {i: b.views[k].clone() for i, (b, k) in old.items()} if self.as_view else {}
            self._build(indices)
            for i, grad in grads.items():
                bucket, k = self.place[i]
                bucket.views[k].copy_(grad)
                if self.params[i].grad is not None:
                    self.params[i].grad = bucket.views[k]

    def restart(self, group: Any) -> None:
        """Continues with the ranks of another group, as before the first iteration. Drops all gradients, and
        an iteration with the last group that was not completed.
        """
        self.group, self.static_counts, self.static_unused = group, None, None
        self.expecting = self.started = self.rebuilt = False
        self.iterations, self._pending_order, self.order = 0, None, []
        self.used_without_sync.clear()
        for p in self.params:
            p.grad = None
        self._build(assignment(self.params, reversed(range(len(self.params))), self.caps))

    def shadow(self) -> None:
        """Takes part with zeros in the reductions of an iteration of the other ranks."""
        if not self.rebuilt and not self.find_unused and self.iterations:
            self._pending_order = self._pending_order or [i for b in self.buckets for i in b.indices]
            self.rebuild()
        self.unused = list(range(len(self.params)))
        for index, bucket in enumerate(self.buckets):
            with _C.GradMode(False):
                bucket.flat.zero_()
            self._launch(index)
        self._all_used()
        for bucket in self.buckets:
            self._take_result(bucket)
        self.iterations += 1
