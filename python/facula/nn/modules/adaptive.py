"""Softmax over many classes, when most are rare."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from ... import _C
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

Tensor = _C.Tensor
_f = _C.functions

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes sorted by frequency, in clusters: the common ones in the head, the others in smaller tails.

    Args:
        cutoffs: where clusters end; the last ends at ``n_classes``
        div_value: the ratio of the numbers of features of successive tails

    Shape: input ``[N, in_features]`` and target ``[N]`` to output ``[N]`` and the mean loss.
    Source: Grave et al., "Efficient softmax approximation for GPUs", 2017.

    >>> m = nn.AdaptiveLogSoftmaxWithLoss(16, 10, [3, 6])
    >>> m(facula.randn(5, 16), facula.tensor([0, 9, 4, 2, 6])).output.shape
    facula.Size([5])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(set(cutoffs))
            or cutoffs[0] <= 0
            or cutoffs[-1] > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                f"where each value is between 1 and n_classes-1, got {cutoffs} of {n_classes} classes"
            )
        factory = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **factory)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **factory),
                    Linear(width, high - low, bias=False, **factory),
                )
            )

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Any:
        input, target = input_, target_
        if input.dim() not in (1, 2) or target.dim() != input.dim() - 1:
            raise RuntimeError(
                "expects input of 1 or 2 dimensions and target of one less, got shapes "
                f"{list(input.shape)} and {list(target.shape)}"
            )
        single = input.dim() == 1
        if single:
            input, target = input.unsqueeze(0), target.unsqueeze(0)
        if input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if target.numel() and not bool(((target >= 0) & (target < self.n_classes)).all()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(target.min())}, {int(target.max())}] were found. "
            )
        head = F.log_softmax(self.head(input), -1)
        # The column of the head: a common class itself, or the cluster of a rare one.
        column = target
        for i, low in enumerate(self.cutoffs[:-1]):
            column = _f.where(target >= low, self.shortlist_size + i, column)
        output = head.gather(1, column.unsqueeze(1)).squeeze(1)
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel():
                tail = F.log_softmax(self.tail[i](input.index_select(0, rows)), -1)
                within = tail.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
                output = output.index_add(0, rows, within)
        loss = -output.mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head, n = F.log_softmax(head_output, -1), self.shortlist_size
        parts = [head[:, :n]]
        for i, tail in enumerate(self.tail):
            parts.append(F.log_softmax(tail(input), -1) + head[:, n + i : n + i + 1])
        return _f.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Logarithms of the probabilities of all classes, ``[N, n_classes]``."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each row, like ``log_prob(input).argmax(1)``."""
        head = self.head(input)
        best = head.argmax(1)
        if bool((best < self.shortlist_size).all()):
            return best
        over_all_classes = self._get_full_log_prob(input, head).argmax(1)
        return _f.where(best < self.shortlist_size, best, over_all_classes)
