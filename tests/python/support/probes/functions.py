"""Functions around the operators: unique, repetition, splitting, testing.assert_close, legacy makers,
printing.
"""

import numpy as np


def probe(torch, P):
    t = torch.tensor
    m = t([[3, 1, 2], [1, 3, 2], [3, 1, 2], [0, 0, 0]])

    def each(name, calls):
        for k, f in enumerate(calls):

            def run():
                r = f()
                return [x.shape for x in r] if isinstance(r, tuple) and r and hasattr(
                    r[0], "shape"
                ) else None, r

            run.__name__ = f"{name}_{k}"
            P(run)

    each(
        "unique",
        [
            lambda: torch.unique(m),
            lambda: m.unique(return_inverse=True),
            lambda: torch.unique(m, return_counts=True),
            lambda: torch.unique(m, return_inverse=True, return_counts=True, dim=0),
            lambda: torch.unique(m, dim=1, return_inverse=True),
            lambda: torch.unique(torch.empty(0)),
            lambda: torch.unique(t([1.5, -2, 1.5])),
            lambda: torch.unique(t(5)),
            lambda: torch.unique(t([True, False, True]), return_counts=True),
            lambda: torch.unique_consecutive(t([1, 1, 2, 2, 1])),
            lambda: torch.unique_consecutive(m, True, True),
            lambda: torch.unique_consecutive(
                t([[1, 2], [1, 2], [3, 4]]), return_inverse=True, return_counts=True, dim=0
            ),
        ],
    )
    each(
        "repeat_interleave",
        [
            lambda: torch.repeat_interleave(m, 2),
            lambda: m.repeat_interleave(2, dim=1),
            lambda: torch.repeat_interleave(t([0, 3, 1])),
            lambda: torch.repeat_interleave(m, t([1, 0, 2, 1]), dim=0),
            lambda: torch.repeat_interleave(m, t([2]), dim=0),
            lambda: torch.repeat_interleave(m, t([1, 2]), dim=0),
            lambda: torch.repeat_interleave(m, -1),
            lambda: torch.repeat_interleave(t([1, -1])),
            lambda: torch.repeat_interleave(m, 0, 0).shape,
        ],
    )
    each("tile", [lambda: m[:1].tile(2), lambda: torch.tile(m[0], (2, 1, 2)), lambda: m[:, :1].tile(1, 3)])
    each(
        "take_along_dim",
        [
            lambda: torch.take_along_dim(m, m.argsort(1), 1),
            lambda: m.take_along_dim(t([5, 0])),
            lambda: torch.take_along_dim(m, t([[1], [0], [2], [1]]), dim=1),
            lambda: torch.take_along_dim(m, t([[1, 0, 2]]), dim=0),
            lambda: torch.take_along_dim(m, t([0]), dim=0),
        ],
    )
    each(
        "tensor_split",
        [
            lambda: torch.tensor_split(torch.arange(7), 3),
            lambda: torch.tensor_split(m, [1, 3]),
            lambda: torch.tensor_split(m, (1, -1), dim=1),
            lambda: m.tensor_split(5),
            lambda: torch.tensor_split(torch.arange(5), t([2, 9])),
            lambda: torch.tensor_split(m, 0),
        ],
    )
    each(
        "diff",
        [
            lambda: torch.diff(m),
            lambda: torch.diff(m, dim=0),
            lambda: torch.diff(m, n=2),
            lambda: torch.diff(t([True, False, False])),
            lambda: torch.diff(t([1.0, 4]), prepend=t([0.0]), append=t([9.0])),
            lambda: torch.diff(t(1.0)),
            lambda: torch.diff(m, n=7),
        ],
    )
    each(
        "diag",
        [
            lambda: torch.diag(t([1.0, 2])),
            lambda: torch.diag(t([1, 2]), 1),
            lambda: torch.diag(t([1, 2]), -2),
            lambda: torch.diag(m, -1),
            lambda: torch.diag(t(1)),
        ],
    )
    each(
        "others",
        [
            lambda: torch.trace(m[:3]),
            lambda: m.ravel(),
            lambda: torch.nansum(t([1.0, float("nan")])),
            lambda: t([[1.0, float("nan")]]).nansum(1, True),
            lambda: torch.scalar_tensor(3),
            lambda: torch.multinomial(t([0.0, 1.0, 0.0]), 3, True),
            lambda: torch.multinomial(t([[0, 1.0], [1, 0.0]]), 1),
            lambda: torch.multinomial(t([1.0, 1.0]), 3),
            lambda: torch.multinomial(t([1.0, -1.0]), 1),
            lambda: torch.multinomial(t([0.0, 0.0]), 1),
            lambda: sorted(torch.multinomial(t([1.0, 1.0, 1.0]), 3).tolist()),
            lambda: torch.normal(2.0, 0.0, (2,)),
            lambda: torch.normal(t([1.0, 2.0]), t([0.0, 0.0])),
            lambda: torch.zeros(2, 3).scatter_(1, t([[1], [2]]), 1.5),
            lambda: torch.ones(3).scatter_(0, t([1, 1]), 2.0, reduce="add"),
            lambda: torch.zeros(3).scatter_add_(0, t([1, 1]), t([2.0, 3.0])),
            lambda: t([1.0, 2.0]).new([3, 4]),
            lambda: t([1.0]).new(2, 3).shape,
            lambda: bool((torch.zeros(100).random_(3, 5) >= 3).all()),
            lambda: bool((torch.zeros(100).exponential_(2.0) >= 0).all()),
            lambda: (torch.pi, torch.e, torch.inf, torch.newaxis),
            lambda: torch._assert(False, "text"),
        ],
    )
    each(
        "legacy",
        [
            lambda: torch.FloatTensor([1, 2]),
            lambda: torch.LongTensor([[1], [2]]).dtype,
            lambda: torch.FloatTensor(2, 3).shape,
            lambda: torch.BoolTensor([0, 1]),
            lambda: isinstance(torch.ones(1), torch.FloatTensor),
            lambda: isinstance(torch.ones(1), torch.LongTensor),
            lambda: torch.FloatTensor().shape,
            lambda: torch.FloatTensor(torch.ones(2)),
            lambda: torch.ByteTensor([1, 2]).dtype,
        ],
    )
    each(
        "environment",
        [
            lambda: torch.cuda.is_available(),
            lambda: torch.cuda.device_count(),
            lambda: torch.jit.is_scripting(),
            lambda: torch.backends.mps.is_available(),
            lambda: torch.jit.ignore(lambda x: x + 1)(1),
            lambda: torch.cuda.manual_seed_all(1),
            lambda: torch.ones(1).is_cuda,
        ],
    )

    def close(a, b, **options):
        torch.testing.assert_close(a, b, **options)

    each(
        "close",
        [
            lambda: close(t([1.0, 2.0]), t([1.0, 2.0000001])),
            lambda: close(1, 1),
            lambda: close(1.0, 1.0 + 1e-9),
            lambda: close([t(1.0), {"a": t(2.0)}], [t(1.0), {"a": t(2.0)}]),
            lambda: close(np.ones(2), np.ones(2)),
            lambda: close(t([float("nan")]), t([float("nan")]), equal_nan=True),
            lambda: close(None, None),
            lambda: close(t([1, 2]), t([1, 2])),
            lambda: close(t([1.0]), t([1.1]), rtol=0.2, atol=0.0),
            lambda: close(t([1.0]), t([1.0]).double(), check_dtype=False),
            lambda: close(1, t(1)),
            lambda: close("a", "a"),
            lambda: close(t([1.0]), [1.0]),
            lambda: close(t([1.0]), t([1.0]), rtol=0.1),
        ],
    )

    def text(a, b, **options):
        try:
            close(a, b, **options)
        except AssertionError as e:
            return "|".join(str(e).splitlines())

    each(
        "close_text",
        [
            lambda: text(t([1.0, 2.0, 3.0]), t([1.0, 2.5, 3.0])),
            lambda: text(t([[1.0, 2.0]]), t([[1.0, 4.0]]), rtol=0.1, atol=0.5),
            lambda: text(t([1, 2]), t([1, 3])),
            lambda: text(t([1.0]), t([1.0, 2.0])),
            lambda: text(t([1.0]), t([1])),
            lambda: text(1.0, 2.0),
            lambda: text(1, 2),
            lambda: text([t(1.0)], [t(1.0), t(2.0)]),
            lambda: text({"a": t(1.0)}, {"a": t(2.0)}),
            lambda: text(t([1.0]), t([2.0]), msg="mine"),
            lambda: text(t([1.0]), t([2.0]), msg=lambda m: "so: " + m[:10]),
            lambda: text(t([float("nan")]), t([float("nan")])),
            lambda: text(t([True]), t([False])),
        ],
    )

    def shown(x, **options):
        torch.set_printoptions(**options)
        try:
            return repr(x)
        finally:
            torch.set_printoptions(profile="default")

    big = (torch.arange(60) * 7919 % 1009).float().reshape(6, 10) / 37
    each(
        "shown",
        [
            lambda: shown(big, precision=2),
            lambda: shown(big, threshold=10, edgeitems=2),
            lambda: shown(big, linewidth=40),
            lambda: shown(big, sci_mode=True),
            lambda: shown(t([1e-6, 1.0]), sci_mode=False),
            lambda: shown(t([1.0, 2.0]), sci_mode=True),
            lambda: shown(big, profile="short"),
            lambda: shown(torch.arange(2000), profile="full")[-20:],
            lambda: shown(big, precision=1, threshold=5, edgeitems=1, linewidth=60),
            lambda: repr(big[0]),
            lambda: shown(big, threshold=float("inf"))[:30],
        ],
    )

    # Quantisation whose numbers are learnt.
    def learned(zero_point, axis=None):
        x = (torch.sin(torch.arange(12.0) * 1.3) * 2).view(3, 4).requires_grad_()
        if axis is None:
            scale = torch.tensor([0.11], requires_grad=True)
            zero = torch.tensor([zero_point], requires_grad=True)
            y = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 0.3)
        else:
            n = x.shape[axis]
            scale = (torch.arange(n) * 0.05 + 0.1).requires_grad_()
            zero = (torch.arange(n) * 1.4 + zero_point).requires_grad_()
            y = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, axis, -8, 7, 0.3)
        (y * torch.arange(12.0).view(3, 4)).sum().backward()
        rounded = [[round(v, 3) for v in t.flatten().tolist()] for t in (y, x.grad, scale.grad, zero.grad)]
        return rounded, type(y.grad_fn).__name__

    @P
    def learned_quantisation_of_a_tensor():
        return [learned(z) for z in (0.0, 3.4, -20.0)]

    @P
    def learned_quantisation_of_channels():
        return [learned(z, axis) for z in (0.0, 3.4, -20.0) for axis in (0, 1)]

    @P
    def asarray_and_gradients():
        found = []
        for x in (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 2, torch.ones(2)):
            for says in (None, False, True):
                for copy in (None, True):
                    given = x.detach().requires_grad_(x.requires_grad) if x.is_leaf else x
                    y = torch.asarray(given, requires_grad=says, copy=copy)
                    found.append((y.requires_grad, y.is_leaf, y is given))
        return found

    @P
    def asarray_that_may_not_copy():
        return torch.asarray([1.0], copy=False)

    @P
    def names_of_types():
        kinds = (torch.nn.Parameter, torch.nn.Linear, int, 3, None, torch.ones(1), torch.nn.Linear(1, 1))
        return [torch.typename(k) for k in kinds]

    @P
    def what_is_a_storage():
        t = torch.ones(2)
        return [torch.is_storage(x) for x in (t, t.storage(), t.untyped_storage(), 3)]

    @P
    def diagonals_of_a_sparse_matrix():
        d = torch.arange(9.0).view(3, 3)
        made = torch.sparse.spdiags(d, torch.tensor([0, -1, 2]), (3, 4))
        rows = torch.sparse.spdiags(d, torch.tensor([0, -1, 2]), (3, 3), layout=torch.sparse_csr)
        return made.to_dense(), rows.layout, rows.to_dense(), rows.col_indices()

    @P
    def diagonals_twice():
        return torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 0]), (3, 3))

    @P
    def largest_and_smallest_of_sparse_products():
        m = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to_sparse_csr()
        return [torch.sparse.mm(m, torch.eye(2), r) for r in ("max", "min", "amax", "amin")]
