"""Short programs over sparse tensors, which Facula and PyTorch run; tests/golden/sparse.jsonl.gz has what
PyTorch gave.

Each line is executed with ``torch``, a few tensors, and gives ``r``.
"""
# ruff: noqa: E501

import io
import pickle
import warnings

BEFORE = """
i = torch.tensor([[0, 1, 1], [2, 0, 2]])
s = torch.sparse_coo_tensor(i, torch.tensor([1.5, -2.0, 3.0]), (2, 3)).coalesce()
u = torch.sparse_coo_tensor([[0, 1, 1, 0, 1], [2, 0, 2, 2, 0]], [1.0, 2.0, 3.0, 4.0, 0.5], (2, 3))
h = torch.sparse_coo_tensor([[2, 0, 2]], [[1.0, -0.0], [3.0, 4.0], [5.0, 6.0]], (4, 2))
e = torch.sparse_coo_tensor(size=(2, 3))
z = torch.sparse_coo_tensor(torch.empty(0, 3, dtype=torch.int64), [5.0, 6.0, 7.0], ())
c = torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [1.5, -2.0, 3.0], (2, 3))
x = torch.sparse_coo_tensor([[0, 1, 0], [1, 1, 1]], [float("nan"), float("inf"), float("-inf")], (2, 3))
d = torch.arange(6.0).reshape(2, 3) - 2
w = torch.arange(6.0).reshape(3, 2) / 4
"""
ALL = "s u h e z c x".split()
UNARY = "abs neg sin tan sinh tanh asin atan sqrt expm1 log1p sign sgn ceil floor trunc round relu isnan isinf".split()

VALUES = [
    *(f"r = {t}" for t in ALL),
    *(f"r = {t}.to_dense()" for t in ALL),
    *(f"r = {t}.coalesce(), {t}.coalesce().is_coalesced()" for t in "suhezx"),
    *(f"r = {t}.sparse_dim(), {t}.dense_dim(), {t}._nnz(), {t}.dim(), {t}.numel(), str({t}.layout), {t}.is_sparse"
      for t in ALL),
    *(f"r = {t}.coalesce().indices(), {t}.coalesce().values()" for t in "suhezx"),
    "r = c.crow_indices(), c.col_indices(), c.values()",
    *(f"r = {t} * 2, 3 * {t}, {t} / 4, -{t}, {t} * torch.tensor(0.5)" for t in "suhezx"),
    *(f"r = {t}.to(torch.float64), {t}.half(), {t}.int()" for t in "suhez"),
    *(f"r = u.{f}(), h.{f}()" for f in UNARY),
    "r = u.pow(2), u ** 3",
    "r = s + s, s - s, s.add(s, alpha=3), s.sub(s, alpha=2)",
    "r = (u + s).to_dense(), (u - s).to_dense(), (e + s), (s + e), (e + e)._nnz(), (h + h.coalesce()).to_dense()",
    "r = s + s.double(), (s + s.int()).dtype",
    "r = d + u, d - u, d.add(u, alpha=2), d.add(s, alpha=-0.5), d.add(e), torch.ones(4, 2) + h, torch.tensor(1.0) + z",
    "r = d.add_(u), d.sub_(s), d.t().contiguous().t().add_(s, alpha=3)",
    "r = s * s, s * d, d * s, u * d, h * torch.arange(8.0).reshape(4, 2)",
    "r = (u * s).to_dense(), (u * u).to_dense(), (s * e).to_dense(), (x * x).to_dense(), (h * h).to_dense()",
    "r = (s * torch.sparse_coo_tensor([[0, 1], [2, 1]], [2.0, 7.0], (2, 3))).to_dense()",
    "r = s @ w, u @ w, e @ w, c @ w, x @ w, torch.sparse.mm(s, w), torch.mm(u, w), s.matmul(w), s.mm(w)",
    "r = s @ torch.arange(3.0), s.mv(torch.arange(3.0)), torch.ones(4, 2) @ u",
    "r = s @ s.t(), torch.sparse.mm(u, s.t()), s @ e.t()",
    "r = torch.addmm(torch.ones(2, 2), s, w, beta=2, alpha=3), torch.sparse.addmm(torch.ones(2, 2), u, w)",
    "r = torch.sparse.sum(u), u.sum(), h.sum(), e.sum(), z.sum(), torch.sparse.sum(u, dtype=torch.float64)",
    "r = torch.sparse.sum(u, 0), torch.sparse.sum(u, 1), torch.sparse.sum(u, [0, 1]), torch.sparse.sum(h, 0)",
    "r = torch.sparse.sum(h, 1), u.sum(0), u.sum(1, keepdim=True).coalesce(), torch.sparse.sum(h, -1)",
    "r = u.t(), u.transpose(0, 1), s.t().coalesce(), u.permute(1, 0), u.T, h.transpose(1, 1)",
    "r = u.unsqueeze(0), u.unsqueeze(-1), h.unsqueeze(1), h.unsqueeze(2)",
    "r = u[0], u[:, 2], u[1, 2], u[-1], h[2], u.select(1, 0)",
    "r = s.index_select(0, torch.tensor([1])).coalesce(), u.index_select(0, torch.tensor([1, 0, 1])).to_dense()",
    "r = s.index_select(1, torch.tensor([2, 0])).to_dense(), h.index_select(0, torch.tensor([2])).to_dense()",
    "r = torch.cat([u, u]), torch.cat([u, s], 1).to_dense(), torch.stack([u, u])",
    "r = u.norm(), h.norm(), u.any(), e.any(), len(u), [t.to_dense() for t in u]",
    "r = u.clone(), u.detach(), torch.zeros_like(u), torch.empty_like(h), c.clone()",
    "r = d.to_sparse(), d.to_sparse(1), d.to_sparse_csr(), u.to_sparse_csr(), c.to_sparse(), torch.zeros(2, 0).to_sparse()",
    "r = torch.tensor(5.0).to_sparse(), torch.zeros(3, 2).to_sparse(), torch.zeros(3, 2).to_sparse_csr()",
    "r = torch.tensor([[0.0, -0.0], [float('nan'), 1.0]]).to_sparse()",
    "r = d.sparse_mask(s), d.sparse_mask(u), torch.ones(4, 2).sparse_mask(h), u.coalesce().sparse_mask(s)",
    "r = u.zero_(), u._nnz()",
    "r = u.mul_(2), s.div_(4), u.neg_()",
    "a = s.clone(); r = a.add_(s), a.copy_(s * 3), a",
    "a = s.detach(); a.mul_(2); r = s",
    "a = u._values(); a.mul_(2); r = u",
    "r = torch.sparse_coo_tensor([[0, 4]], [1, 2]), torch.sparse_coo_tensor([[0, 4]], [True, False], (6,))",
    "r = torch.sparse_coo_tensor([[0, 0]], [[1.0, 2.0], [3.0, 4.0]]), torch.sparse_coo_tensor([[1]], 2.0, (3,))",
    "r = torch.sparse_coo_tensor((2, 3), dtype=torch.int8), torch.sparse_coo_tensor([[]], [], (2,))",
    "r = torch.sparse_coo_tensor([[2**31, 2**40]], [1.0, 2.0]).coalesce().indices()",
    "r = torch.sparse_coo_tensor([[2**31 - 1, 5, 5], [2**31 - 2, 7, 7]], [1.0, 2.0, 3.0], (2**31, 2**31)).coalesce()",
    "r = torch.sparse_coo_tensor([[2**40, 3]], [1.0, 2.0], (2**41,)) * 2",
    "r = x.coalesce(), (x * 0).to_dense(), x.to_dense()",
    "r = torch.sparse_csr_tensor([0, 2, 2], [0, 1], [1.0, 2.0]), (c * 2).values(), str(c.layout), c.sum()",
    "r = [str(t) for t in (s, u, h, e, z, c, x, s.double(), s.requires_grad_(), h.int())]",
    *(f"t = torch.sparse_coo_tensor([[1, 0, 1]], [3, 1, 5], (3,)).to(torch.{t}); r = t.coalesce(), t.to_dense(), t * 2"
      for t in "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()),
    "t = torch.sparse_coo_tensor([[0] * 300], [100] * 300, (1,), dtype=torch.int8); r = t.to_dense(), t.coalesce()",
    "t = torch.sparse_coo_tensor([[0] * 300], [True] * 256 + [False] * 44, (2,)); r = t.to_dense(), t.coalesce()",
    "t = torch.sparse_coo_tensor([[0, 1, 0]], [1 + 2j, 3j, 2.5]); r = t.coalesce(), t.to_dense(), t.abs()",
]  # fmt: skip

GRADIENTS = [
    f"{t}.requires_grad_(); {program}; r = {t}.grad.coalesce(){more}"
    for t in "su"
    for program, more in [
        (f"({t}.to_dense() * d).sum().backward()", ""),
        (f"v = w.clone().requires_grad_(); torch.sparse.mm({t}, v).pow(2).sum().backward()", ", v.grad"),
        (f"torch.sparse.sum({t}).backward()", ""),
        (f"torch.sparse.sum({t}, 0).to_dense().pow(2).sum().backward()", ""),
        (f"torch.sparse.sum({t} * {t}).backward()", ""),
        (f"torch.sparse.sum({t} * 2 / 3).backward()", ""),
        (f"torch.sparse.sum(-{t}).backward()", ""),
        (f"({t} + {t}).to_dense().pow(2).sum().backward()", ""),
        (f"{t}.t().to_dense().pow(2).sum().backward()", ""),
        (f"torch.sparse.addmm(torch.zeros(2, 2), {t}, w, alpha=3).pow(2).sum().backward()", ""),
        (f"{t}.coalesce().values().pow(2).sum().backward()", ""),
        (f"{t}.clone().abs().to_dense().sum().backward()", ""),
        (f"{t}.double().to_dense().pow(3).sum().backward()", ""),
        (f"({t} * d).to_dense().pow(2).sum().backward()", ""),
    ]
] + [
    "v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True); t = torch.sparse_coo_tensor([[1, 0, 1]], v, (3,)); "
    "t.to_dense().pow(2).sum().backward(); r = v.grad",
    "v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True); "
    "torch.sparse_coo_tensor([[1, 0, 1]], v, (3,)).coalesce().values().pow(2).sum().backward(); r = v.grad",
    "v = w.clone().requires_grad_(); (torch.ones(4, 2) @ u @ v).pow(2).sum().backward(); r = v.grad",
    "v = d.clone().requires_grad_(); v.to_sparse().to_dense().pow(2).sum().backward(); r = v.grad",
    "v = d.clone().requires_grad_(); v.sparse_mask(s).values().pow(2).sum().backward(); r = v.grad",
    "v = d.clone().requires_grad_(); ((v + u) * d).sum().backward(); r = v.grad",
    "v = d.clone().requires_grad_(); (c @ w).sum(); torch.sparse.sum(s * v).backward(); r = v.grad.to_dense()",
    "v = w.clone().requires_grad_(); (c @ v).pow(2).sum().backward(); r = v.grad",
]  # fmt: skip

# The gradients of operators that are not of torch.sparse: those of dense operands.
FULL = [
    f"v = w.clone().requires_grad_(); t = {t}.requires_grad_(); {program}.pow(2).sum().backward(); "
    f"g = t.grad; r = str(g.layout), (g if g.layout is torch.strided else g.to_dense()){more}"
    for t in "suc"
    for program, more in [
        ("(t @ v)", ", v.grad"), ("torch.mm(t, v)", ", v.grad"), ("torch.mm(d.t(), t)", ""), ("t.mv(v[:, 0])", ", v.grad"),
        ("(t @ v[:, 1])", ", v.grad"), ("(torch.ones(4, 2) @ t)", ""),
        ("torch.addmm(torch.ones(2, 2), t, v, alpha=3)", ", v.grad"),
        ("torch.nn.functional.linear(t, v.t())", ", v.grad"), ("torch.nn.functional.linear(d, t)", ""),
        ("(d + t)", ""), ("d.sub(t, alpha=2)", ""), ("t.sum()", ""), ("((t * 3) @ v)", ", v.grad"),
        ("(-t @ v)", ", v.grad"), ("(t.t() @ torch.ones(2, 4))", ""), ("t.to_dense()", ""),
        ("t.double().to_dense()", ""), ("(t.to_sparse() @ v)", ""),
    ]
    if (t, program) != ("c", "d.sub(t, alpha=2)")
] + [
    "t = s.requires_grad_(); ((t / 4) @ w).sum().backward(); r = t.grad",
    "t = torch.stack([s, s * 2]).requires_grad_(); v = torch.ones(2, 3, 2).requires_grad_(); "
    "torch.bmm(t, v).pow(2).sum().backward(); r = t.grad, v.grad",
]  # fmt: skip
COMPRESSED = [
    "r = c.t(), c.transpose(0, 1), c.t().t(), c.transpose(1, 1), c.t() * 2",
    "r = c.to_sparse_csc(), s.to_sparse_csc(), d.to_sparse_csc(), c.to_sparse(layout=torch.sparse_csc), c.t().to_sparse_csr()",
    "k = c.to_sparse_csc(); r = k.ccol_indices(), k.row_indices(), k.values(), str(k.layout), k._nnz(), k.to_dense()",
    "k = c.to_sparse_csc(); r = k @ w, k @ torch.ones(3), torch.ones(4, 2) @ k, k.to_sparse().coalesce(), k.clone(), k.double(), -k",
    "k = c.to_sparse_csc(); r = k + k, k.abs(), k.relu(), k.sum(), d + k, k.detach(), torch.zeros_like(k), k.sparse_dim()",
    "k = c.to_sparse_csc(); r = k[0], k[:, 2], k[1, 2], [str(t.layout) for t in k], str(k), k.is_sparse, k.is_sparse_csr",
    "r = torch.sparse_csc_tensor([0, 1, 2], [1, 0], [3.0, 4.0]), torch.sparse_csc_tensor([0, 1, 1, 2], [1, 0], [1, 2], (2, 3))",
    "r = torch.sparse_compressed_tensor([0, 1, 2], [1, 0], [3.0, 4.0], layout=torch.sparse_csc)",
    "f = io.BytesIO(); torch.save(c.to_sparse_csc(), f); f.seek(0); r = torch.load(f), pickle.loads(pickle.dumps(c.t()))",
    "r = c[0], c[:, 2], c[1, 2], c[-1], c.select(1, 0), [t.to_dense() for t in c], [str(t.layout) for t in c.unbind(1)]",
    "r = c.sum(0, keepdim=True), c.sum(1, keepdim=True), c.sum((0, 1), keepdim=True)", "c.sum(0)", "c.to_sparse_csc().sum(0)",
    "r = c * d, d * c, c * c, c * torch.tensor(2.0)",
    "r = torch.nn.functional.linear(torch.ones(4, 3), c), torch.nn.functional.linear(c, w.t())",
    "r = torch.nn.functional.linear(s, w.t(), torch.ones(2)), torch.nn.functional.linear(torch.ones(4, 3), s)",
    "b = torch.stack([s, s * 2]); r = b.mT, torch.bmm(b, torch.ones(2, 3, 2)), b.transpose(1, 2)",
    "r = torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 1, 3]), 4)",
    "r = torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 1, 3], dtype=torch.int32), 4, out_int32=True)",
    "r = torch._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]))",
    "r = torch._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), out_int32=True, transpose=True)",
    "r = torch.ops.aten._sparse_addmm(torch.ones(2, 2), u, w, beta=2, alpha=3)",
    *(f"r = torch.ops.aten._sparse_mm_reduce_impl(c, w, '{f}')[0]" for f in ("sum", "mean", "amax", "amin")),
    "r = torch.ops.aten._sparse_mm_reduce_impl(c.requires_grad_(), w, 'amax')",
    *(f"r = torch.segment_reduce(d, '{f}', lengths=torch.tensor([2])), torch._segment_reduce(d, '{f}', lengths=torch.tensor([1, 1]))"
      for f in ("amax", "amin", "max", "min")),
    "c.row_indices()", "c.t().crow_indices()", "s.ccol_indices()", "d.row_indices()", "c.t().is_coalesced()",
    "t = s.requires_grad_(); t.to_dense(masked_grad=False).sum().backward(); r = t.grad",
    "r = (c.t() @ c).to_dense(), str((c.t() @ c).layout), torch.mm(c, c.t()).to_dense()",
]  # fmt: skip

TABLE = (
    "w = torch.nn.Parameter(torch.arange(10.0).reshape(5, 2) / 4); "
    "f = torch.nn.functional; i = torch.tensor([[1, 2], [2, 4]]); "
)
EMBEDDINGS = [
    TABLE + "f.embedding(i, w, sparse=True).pow(2).sum().backward(); r = w.grad",
    TABLE + "f.embedding(i, w, padding_idx=2, sparse=True).pow(2).sum().backward(); r = w.grad",
    TABLE + "f.embedding(i[:0], w, sparse=True).sum().backward(); r = w.grad",
    TABLE + "[f.embedding(i, w, sparse=True).pow(2).sum().backward() for _ in '12']; r = w.grad.coalesce()",
    TABLE + "(f.embedding(i, w, sparse=True).sum() + (w * w).sum()).backward(); r = w.grad",
    TABLE + "(w * w).sum().backward(); f.embedding(i, w, sparse=True).sum().backward(); r = w.grad",
    TABLE + "f.embedding(i, w, sparse=True).sum().backward(); (w * w).sum().backward(); r = w.grad",
    TABLE + "f.embedding(i, w * 2, sparse=True).pow(2).sum().backward(); r = w.grad.to_dense()",
    TABLE + "f.embedding(i, w, scale_grad_by_freq=True, sparse=True).sum().backward()",
    *(TABLE + f"f.embedding_bag(i.reshape(-1), w, torch.tensor([0, 3]), mode='{m}', sparse=True, padding_idx={p})"
      ".pow(2).sum().backward(); r = w.grad" for m in ("sum", "mean") for p in (None, 2)),
    TABLE + "p = torch.arange(4.0).requires_grad_(); f.embedding_bag(i.reshape(-1), w, torch.tensor([0, 3]), "
    "per_sample_weights=p, mode='sum', sparse=True).pow(2).sum().backward(); r = w.grad, p.grad",
    TABLE + "r = torch.autograd.grad(f.embedding(i, w, sparse=True).pow(2).sum(), w)[0]",
    TABLE + "f.embedding(i, w, sparse=True).sum().backward(); o = torch.optim.SGD([w]); o.zero_grad(set_to_none=False);"
    " r = w.grad",
    *(TABLE + f"f.embedding(i, w, sparse=True).sum().backward(); torch.optim.{o}([w]).step()"
      for o in ("Adam", "RMSprop", "Adadelta", "Adamax")),
    TABLE + "w.sum().backward(); torch.optim.SparseAdam([w]).step()",
    "torch.optim.SparseAdam([s])", "torch.optim.SparseAdam([d], lr=0)", "torch.optim.SparseAdam([d], betas=(0, 1))",
]  # fmt: skip
TRAINING = (
    "w = torch.nn.Parameter(torch.sin(torch.arange(24.0, dtype=torch.{dtype})).reshape(8, 3)); "
    "o = torch.optim.{optimizer}; "
    "[(o.zero_grad(), torch.nn.functional.embedding(torch.tensor([k % 8, 3, (5 * k + 1) % 8, 3]), w, sparse=True)"
    ".pow(2).sum().backward(), o.step()) for k in range(25)]; r = w, [dict(x) for x in o.state_dict()['state'].values()]"
)
OPTIMIZERS = [
    TRAINING.replace("{dtype}", dtype).replace("{optimizer}", optimizer)
    for dtype in ("float32", "float64")
    for optimizer in (
        "SparseAdam([w], lr=0.1)", "SparseAdam([w], lr=0.05, betas=(0.8, 0.9), eps=1e-3, maximize=True)",
        "SGD([w], lr=0.1)", "SGD([w], lr=0.1, maximize=True)", "Adagrad([w], lr=0.1, lr_decay=0.1)",
    )
]  # fmt: skip

ERRORS = [
    "torch.sparse_coo_tensor([[0, -1], [0, 1]], [1.0, 2.0])",
    "torch.sparse_coo_tensor([[0, -1], [0, 1]], [1.0, 2.0], (2, 2), check_invariants=True)",
    "torch.sparse_coo_tensor([[0, 5], [0, 1]], [1.0, 2.0], (2, 2), check_invariants=True)",
    "torch.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0, 3.0], (2, 2))",
    "torch.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (2,))",
    "torch.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (2, 2, 3))",
    "torch.sparse_coo_tensor([0, 1], [1.0, 2.0])",
    "torch.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,), is_coalesced=True, check_invariants=True)",
    "torch.sparse_coo_tensor(size=(2**40, 2**40))",
    "torch.sparse_coo_tensor([[2**40 - 1], [2**40 - 1]], [1.0], (2**40, 2**40))",
    "u.indices()", "u.values()", "d.coalesce()", "d.indices()", "d.values()", "d.is_coalesced()", "d.crow_indices()",
    "s.crow_indices()", "c.indices()", "c.is_coalesced()", "c.coalesce()",
    "s + d", "s + 1", "s / d", "s.numpy()", "s.data_ptr()", "s.tolist()", "s.storage()", "s.nbytes",
    "s + torch.sparse_coo_tensor(size=(3, 2))", "s @ torch.ones(2, 2)", "s[2]", "s.transpose(0, 2)",
    "torch.zeros(2, 3).copy_(s)", "s.cos()", "s.exp()", "s.view(6)", "s.max()", "s.mean()", "s == s",
    "torch.where(s, s, s)", "s.fill_(1)", "torch.ones_like(s)", "torch.linalg.vector_norm(s)", "torch.dot(s[0], s[0])",
    "torch.softmax(s, 1)", "torch.equal(s, s)", "s.sort()", "s.cumsum(0)",
    "torch.testing.assert_close(s, s * 2)", "torch.testing.assert_close(s, s.to_dense())",
    "torch.testing.assert_close(s, torch.sparse_coo_tensor([[0, 0, 1], [0, 1, 2]], [1.0, 2.0, 3.0], (2, 3)).coalesce())",
    "torch.testing.assert_close(s, e)",
    "r = torch.testing.assert_close(s.requires_grad_(), s.detach() * (1 + 1e-8))",
    "r = torch.testing.assert_close(s, s.to_dense(), check_layout=False)",
]  # fmt: skip

PROGRAMS = VALUES + GRADIENTS + FULL + COMPRESSED + EMBEDDINGS + OPTIMIZERS + ERRORS


def number(v):
    return [v.real.hex(), v.imag.hex()] if isinstance(v, complex) else v.hex() if isinstance(v, float) else v


def numbers(x):
    return [numbers(v) for v in x] if isinstance(x, list) else number(x)


def described(torch, x):
    if isinstance(x, torch.Tensor):
        d = {
            "layout": str(x.layout).split(".")[1],
            "dtype": str(x.dtype).split(".")[1],
            "size": list(x.shape),
        }
        x = x.detach()
        if x.is_sparse:
            d.update(
                indices=x._indices().tolist(),
                values=numbers(x._values().tolist()),
                coalesced=x.is_coalesced(),
            )
        elif x.layout is torch.sparse_csr:
            d.update(crow=x.crow_indices().tolist(), columns=x.col_indices().tolist(),
                     values=numbers(x.values().tolist()))  # fmt: skip
        elif x.layout is torch.sparse_csc:
            d.update(ccol=x.ccol_indices().tolist(), rows=x.row_indices().tolist(),
                     values=numbers(x.values().tolist()))  # fmt: skip
        else:
            d.update(values=numbers(x.tolist()))
        return d
    if isinstance(x, (list, tuple)):
        return [described(torch, v) for v in x]
    if isinstance(x, dict):
        return {k: described(torch, v) for k, v in x.items()}
    if isinstance(x, str):
        return x.replace("facula.", "torch.")
    if isinstance(x, torch.dtype):
        return str(x).split(".")[1]
    return number(x) if isinstance(x, (float, complex)) else x


def result(torch, program):
    """What a program gives, or the type and the text of its error."""
    scope = {"torch": torch, "io": io, "pickle": pickle}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(BEFORE, scope)
        try:
            exec(program, scope)
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error).split("\n")[0]}
    return described(torch, scope.get("r"))
