"""Communication hooks that send gradients as products of two thin matrices.

A gradient M of n x m is approximated by P Q^T with P = M Q orthogonalized and Q = M^T P; only P (n x r) and
Q (m x r) are reduced. The error is added to the next gradient.
Source: Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", 2019.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from typing import Any

from .... import _C, linalg
from ... import _collectives as collective
from ..._futures import DeferredFuture
from ..._groups import _get_default_group
from ..._reducer import GradBucket
from .default_hooks import _allreduce_fut

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

Tensor = _C.Tensor
logger = logging.getLogger(__name__)


def _orthogonalize(matrices: Tensor, epsilon: float = 0) -> None:
    """Replaces the columns of each matrix of a batch [k, n, r] by orthonormal ones."""
    if matrices.dim() == 2:
        return _orthogonalize(matrices.unsqueeze(0), epsilon)
    if matrices.shape[2] > matrices.shape[1]:
        raise AssertionError(f"more columns than rows: {list(matrices.shape)}")
    if epsilon == 0 and matrices.dtype not in (_C.float16, _C.bfloat16):
        matrices.copy_(linalg.qr(matrices)[0])
        return None
    for i in range(matrices.shape[2]):
        column = matrices[:, :, i : i + 1]
        column.div_(linalg.vector_norm(column, dim=1, keepdim=True) + epsilon)
        if i + 1 < matrices.shape[2]:
            rest = matrices[:, :, i + 1 :]
            rest.sub_((column * rest).sum(dim=1, keepdim=True) * column)
    return None


class PowerSGDState:
    """The settings of the hooks and what they keep between iterations: errors, and the last P and Q.

    The first ``start_powerSGD_iter`` iterations reduce gradients as they are. Matrices are compressed if that
    saves more than a factor of ``min_compression_rate``.
    """

    __slots__ = [
        "batch_tensors_with_same_shape",
        "compression_stats_logging_frequency",
        "error_dict",
        "iter",
        "matrix_approximation_rank",
        "min_compression_rate",
        "next_stats_report",
        "orthogonalization_epsilon",
        "p_memory_dict",
        "process_group",
        "q_memory_dict",
        "rng",
        "start_powerSGD_iter",
        "total_numel_after_compression",
        "total_numel_before_compression",
        "use_error_feedback",
        "warm_start",
    ]

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, "
                "because PowerSGD can "
                "only be applied after the first two iterations in DDP."
            )
        import numpy as np

        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.RandomState(random_seed)
        self.error_dict: dict[int, Tensor] = {}
        self.p_memory_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("NOTE: Process group is not serializable and excluded from a saved state.")
        return {slot: getattr(self, slot) for slot in self.__slots__ if slot != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = _get_default_group()
        logger.warning("NOTE: Process group will be set to a default group (i.e. the world size).")
        for slot, value in state.items():
            setattr(self, slot, value)

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts an iteration at its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple[float, int, int]:
        """Returns the rate, and the numbers of elements before and after compression."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after > 0 else 0), before, after

    def _group(self) -> Any:
        return self.process_group if self.process_group is not None else _get_default_group()

    def _random(self, *shape: int, dtype: Any) -> Tensor:
        """Normal numbers, the same on all ranks."""
        seed = int(self.rng.randint(1_000_000_000))
        generator = _C.Generator().manual_seed(seed)
        return _C.functions.randn(shape, dtype=dtype, generator=generator)

    def _fed_back(self, bucket: GradBucket) -> Tensor | None:
        """Adds the error of the last iteration to the gradients, and returns a copy of them."""
        if not self.use_error_feedback:
            return None
        buffer, index = bucket.buffer(), bucket.index()
        if index in self.error_dict:
            buffer.add_(self.error_dict[index])
        return buffer.clone()


def _mean(state: PowerSGDState, tensor: Tensor) -> Tensor:
    group = state._group()
    collective.all_reduce(tensor, group=group)
    return tensor.div_(group.size())


class _Shapes:
    """The matrices of a bucket with one shape, and their P and Q: [count, n, m], [count, n, r], [count, m,
    r].
    """

    def __init__(self, gradients: list[Tensor], p: Tensor, q: Tensor) -> None:
        self.gradients, self.p, self.q = gradients, p, q
        self.matrices = _C.functions.stack(gradients)


def _divided(
    state: PowerSGDState, bucket: GradBucket
) -> tuple[dict[tuple[int, int], list[Tensor]], list[Tensor]]:
    """Returns the matrices of the bucket that are worth compressing, by shape, and all other gradients."""
    matrices: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    others = []
    rank = state.matrix_approximation_rank
    for g in bucket.gradients():
        view = g.reshape(g.shape[0], -1) if g.dim() > 1 else g
        n, m = (view.shape[0], view.shape[1]) if g.dim() > 1 else (g.numel(), 1)
        r = min(n, m, rank)
        sent = (n + m) * r
        shared = g.dim() > 1 and view.data_ptr() == g.data_ptr()
        if shared and sent * state.min_compression_rate < g.numel():
            matrices[(n, m)].append(view)
            state.total_numel_after_compression += sent
        else:
            others.append(g)
            state.total_numel_after_compression += g.numel()
        state.total_numel_before_compression += g.numel()
    return matrices, others


def _factors(
    state: PowerSGDState, index: int, matrices: dict[tuple[int, int], list[Tensor]]
) -> tuple[list[_Shapes], bool]:
    """Returns views of the flat memory of all P and of all Q of a bucket, and whether Q is that of the last
    iteration.
    """
    rank = state.matrix_approximation_rank
    sizes = [(n, m, len(gs), min(n, m, rank)) for (n, m), gs in matrices.items()]
    p_count, q_count = sum(n * k * r for n, _, k, r in sizes), sum(m * k * r for _, m, k, r in sizes)
    q = state.q_memory_dict.get(index)
    warm = state.warm_start and q is not None and q.numel() == q_count
    if not warm:
        dtype = next(iter(matrices.values()))[0].dtype
        state.p_memory_dict[index] = _C.functions.empty(p_count, dtype=dtype)
        state.q_memory_dict[index] = _C.functions.empty(q_count, dtype=dtype)
    p_flat, q_flat = state.p_memory_dict[index], state.q_memory_dict[index]
    shapes, p_at, q_at = [], 0, 0
    for (n, m, k, r), gradients in zip(sizes, matrices.values()):
        p = p_flat[p_at : p_at + n * k * r].view(k, n, r)
        q = q_flat[q_at : q_at + m * k * r].view(k, m, r)
        p_at, q_at = p_at + n * k * r, q_at + m * k * r
        shapes.append(_Shapes(gradients, p, q))
    return shapes, warm


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Any:
    """Compresses each matrix of the bucket; other gradients are reduced as they are."""
    buffer, group = bucket.buffer(), state._group()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(group, buffer)
    copy = state._fed_back(bucket)
    index = bucket.index()
    matrices, others = _divided(state, bucket)
    flat = _C.functions.cat([g.reshape(-1) for g in others]) if others else None
    pending = collective.all_reduce(flat, group=group, async_op=True) if flat is not None else None

    def finish() -> Tensor:
        if pending is not None and flat is not None:
            pending.wait()
            flat.div_(group.size())
            begin = 0
            for g in others:
                g.copy_(flat[begin : begin + g.numel()].view(g.shape))
                begin += g.numel()
        if matrices:
            _compress(state, index, matrices)
        if copy is not None:
            state.error_dict[index] = copy.sub_(buffer)
        if not state.warm_start:
            state.p_memory_dict.clear()
            state.q_memory_dict.clear()
        state.maybe_increase_iter(bucket)
        return buffer

    return DeferredFuture(finish, _Started())


def _compress(state: PowerSGDState, index: int, matrices: dict[tuple[int, int], list[Tensor]]) -> None:
    """Replaces the matrices by the means of their approximations."""
    shapes, warm = _factors(state, index, matrices)
    for s in shapes:
        if not warm:
            s.q.copy_(state._random(*s.q.shape, dtype=s.q.dtype))
        _orthogonalize(s.q, state.orthogonalization_epsilon)
        s.p.copy_(_C.functions.bmm(s.matrices, s.q))
    collective.all_reduce(state.p_memory_dict[index], group=state._group())
    for s in shapes:
        _orthogonalize(s.p, state.orthogonalization_epsilon)
        s.q.copy_(_C.functions.bmm(s.matrices.mT, s.p))
    _mean(state, state.q_memory_dict[index])
    for s in shapes:
        product = _C.functions.bmm(s.p, s.q.mT)
        for k, g in enumerate(s.gradients):
            g.copy_(product[k])


class _Started:
    """The source of a future whose value is computed when it is waited for."""

    def is_completed(self) -> bool:
        return False

    def _when_done(self, f: Any) -> None:
        f()


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Any:
    """Compresses the bucket as one square matrix: less work and less exact than ``powerSGD_hook``."""
    buffer, group, index = bucket.buffer(), state._group(), bucket.index()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(group, buffer)
    n, rank = buffer.numel(), state.matrix_approximation_rank
    side = math.ceil(math.sqrt(n))
    state.total_numel_before_compression += n
    state.total_numel_after_compression += 2 * side * rank
    copy = state._fed_back(bucket)
    matrix = _C.functions.zeros(side * side, dtype=buffer.dtype)
    matrix[:n] = buffer
    matrix = matrix.view(side, side)

    def finish() -> Tensor:
        q = state.q_memory_dict.get(index) if state.warm_start else None
        if q is None or q.shape != (side, rank):
            q = state._random(side, rank, dtype=buffer.dtype)
        _orthogonalize(q, state.orthogonalization_epsilon)
        p = matrix @ q
        collective.all_reduce(p, group=group)
        _orthogonalize(p, state.orthogonalization_epsilon)
        q = _mean(state, matrix.t() @ p)
        state.p_memory_dict[index], state.q_memory_dict[index] = p, q
        buffer.copy_((p @ q.t()).reshape(-1)[:n])
        if copy is not None:
            state.error_dict[index] = copy.sub_(buffer)
        state.maybe_increase_iter(bucket)
        return buffer

    return DeferredFuture(finish, _Started())
