"""vmap: every operator of the registry, batched over each tensor argument and over all, against the loop over
slices; gradients through it; nesting; what it refuses.
"""

import contextlib

import facula._C as C
import numpy as np
import pytest
from facula.func import (
    debug_unwrap,
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vjp,
    vmap,
)
from support.operators import arguments, call, cases, dtype_of, largest, values

import facula as F

BATCH = 3
ALL = [c for c in cases() if c.samples]
BY_NAME = {c.name: c for c in ALL}

# Uninitialised memory, and operators whose result is no function of their arguments' values.
UNDEFINED = {
    "empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "empty.names", "new_empty",
    "_rng_take",
}  # fmt: skip


def dtype_for(case):
    for d in ("float64", "float32", "complex128", "int64", "bool"):
        if d in case.dtypes:
            return d
    return case.dtypes[0]


# What has another size for each call, or changes memory that belongs to all: refused, as by PyTorch.
REFUSED = {
    "nonzero", "_repeated_positions", "resize_", "resize_as_",
    "_run_starts", "_run_values", "_counts", "unique_dim",
}  # fmt: skip
# Of which each call of a sample gives another number of tensors or elements.
READ = {"_of_length", "where.positions", "unique_consecutive", "_unique2", "repeat_interleave.Tensor"}


def tensors_of(sample):
    return [n for n in sample if sample[n]["kind"] != "literal"]


class Batch:
    """The arguments of BATCH calls of one sample, of which those in `chosen` differ from call to call."""

    def __init__(self, case, number, dtype, chosen=None):
        self.case, self.names = case, []
        base = arguments(case, number, dtype)
        sample = case.samples[number]
        self.names = [n for n in base if sample[n]["kind"] != "literal"]
        self.chosen = [n for n in self.names if chosen is None or n in chosen]
        self.calls = []
        for i in range(BATCH):
            args = dict(base)
            for n in self.chosen:
                args[n] = self._variant(sample[n], n, f"{number}/{i}", dtype, base[n])
            self.calls.append(args)
        self.base = base

    def _variant(self, a, name, number, dtype, like):
        def one(k, t):
            x = values(self.case.name, number, name, k, a, dtype)
            return F.tensor(np.ascontiguousarray(x)).reshape(x.shape).to(t.dtype)

        return [one(k, t) for k, t in enumerate(like)] if isinstance(like, list) else one(0, like)

    def stacked(self):
        out = {}
        for n in self.chosen:
            items = [c[n] for c in self.calls]
            out[n] = [F.stack(x) for x in zip(*items)] if isinstance(items[0], list) else F.stack(items)
        return out

    def require(self, real):
        """Leaves that require gradients, and the batches made of them."""
        self.leaves, self.given = [], []

        def leaf(t):
            t = t.detach().clone().requires_grad_()
            self.leaves.append(t)
            return t

        for args in self.calls:
            self.given.append(dict(args))
        for n in self.chosen:
            for given in self.given:
                x = given[n]
                if n in real:
                    given[n] = [leaf(t) for t in x] if isinstance(x, list) else leaf(x)
        for n in real:
            if n not in self.chosen:
                x = self.base[n]
                shared = [leaf(t) for t in x] if isinstance(x, list) else leaf(x)
                self.base = {**self.base, n: shared}
        self.calls, kept = self.given, self.calls
        self.stacked_like = self.stacked()
        self.calls = kept

    def rows(self):
        rows = [self.one({n: args[n] for n in self.chosen}) for args in self.given]
        return [F.stack([r[k] for r in rows]) for k in range(len(rows[0]))]

    def mapped_rows(self):
        return list(vmap(self.one, randomness="same")(self.stacked_like))

    def one(self, args):
        """The results of the call with these arguments, and what it wrote."""
        results = [r for r in call(self.case, {**self.base, **args}) if r is not None]
        written = []
        if self.case.writes:
            for n in self.chosen:
                written += args[n] if isinstance(args[n], list) else [args[n]]
        return tuple(results + written)


def copied(tree):
    return {
        n: [t.clone() for t in x] if isinstance(x, list) else x.clone() if isinstance(x, F.Tensor) else x
        for n, x in tree.items()
    }


def looped(batch):
    rows = []
    for args in batch.calls:
        F.manual_seed(7)
        rows.append(batch.one(copied({n: args[n] for n in batch.chosen})))
    return [F.stack([r[k] for r in rows]) for k in range(len(rows[0]))]


def mapped(batch, randomness="same"):
    F.manual_seed(7)
    return list(vmap(batch.one, randomness=randomness)(copied(batch.stacked())))


def tolerance(dtype):
    return {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4}.get(dtype, 1e-2)


def check(got, want, text=""):
    assert len(got) == len(want), text
    for g, w in zip(got, want):
        assert tuple(g.shape) == tuple(w.shape), (text, g.shape, w.shape)
        assert g.dtype == w.dtype, (text, g.dtype, w.dtype)
        g, w = g.detach().resolve_conj().resolve_neg(), w.detach().resolve_conj().resolve_neg()
        a, b = g.contiguous().numpy(), w.contiguous().numpy()
        t = tolerance(dtype_of(g))
        np.testing.assert_allclose(a, b, rtol=t, atol=t, err_msg=text)


def choices(names):
    return [None] if len(names) < 2 else [None, *({n} for n in names)]


@pytest.mark.parametrize("name", [c.name for c in ALL if c.name not in UNDEFINED])
def test_a_batch_of_calls_gives_what_the_calls_give(name):
    case = BY_NAME[name]
    dtype = dtype_for(case)
    done = 0
    for number, sample in enumerate(case.samples):
        names = tensors_of(sample)
        if not names or largest(sample) > 4096:
            continue
        for chosen in choices(names):
            batch = Batch(case, number, dtype, chosen)
            try:
                want = looped(batch)
            except RuntimeError:
                continue  # one of the calls refuses its operands, or their results differ in shape
            if case.writes and chosen is not None:
                continue
            if name in REFUSED:
                with pytest.raises((RuntimeError, NotImplementedError)):
                    mapped(batch)
                continue
            check(mapped(batch), want, f"{name} sample {number} over {chosen or 'all'}")
            done += 1
    assert done or case.name in REFUSED | READ or not any(tensors_of(s) for s in case.samples)


def differentiable(case):
    return case.differentiable and not case.random and not case.writes and "float64" in case.dtypes


def gradients(batch, real, run):
    """Of the results of `run(batch)`, weighted, for all leaves; None if there is none."""
    batch.require(real)
    try:
        results = [r for r in run(batch) if r.requires_grad]
        weights = [F.tensor(np.cos(np.arange(r.numel()))).reshape(r.shape).to(r.dtype) for r in results]
        if not results or not batch.leaves:
            return None
        return F.autograd.grad(results, batch.leaves, weights, allow_unused=True)
    except RuntimeError as e:
        if "is not implemented" in str(e) or "no second derivative" in str(e):
            return None
        raise


@pytest.mark.parametrize("name", [c.name for c in ALL if differentiable(c) and c.name not in UNDEFINED])
def test_gradients_through_a_batch_are_those_of_the_calls(name):
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        names = tensors_of(sample)
        real = [n for n in names if not (sample[n]["index"] or sample[n]["boolean"])]
        if not real or largest(sample) > 512:
            continue
        for chosen in choices(names)[:2]:
            batch = Batch(case, number, "float64", chosen)
            try:
                looped(batch)
            except RuntimeError:
                continue
            want = gradients(batch, real, Batch.rows)
            if want is None:
                with contextlib.suppress(RuntimeError):  # an operand that has no derivative
                    assert gradients(batch, real, Batch.mapped_rows) is None
                continue
            found = gradients(batch, real, Batch.mapped_rows)
            for a, b, x in zip(found, want, batch.leaves, strict=True):
                a, b = (F.zeros_like(x) if g is None else g for g in (a, b))
                check([a], [b], f"{name} sample {number} over {chosen or 'all'}")


# ---- which calls no rule does the work of

# Operators of which a sample is called one by one: bodies that look at elements, draws by rejection, what
# LAPACK and CTC have no batches of, and forms that a rule leaves to the loop.
ONE_BY_ONE = set(
    """
    _ctc_loss _ctc_loss_backward _embedding_bags _foreach_addcdiv.Tensor
    _foreach_addcdiv_.Tensor _foreach_addcmul.Tensor _foreach_addcmul_.Tensor _histogramdd_bin_edges
    _linear_cross_entropy _lu_with_info _masked_median _randperm _recurrence _recurrence_backward
    _sample_dirichlet _searchsorted _standard_gamma _standard_log_gamma argwhere bernoulli bincount
    binomial bucketize cholesky_inverse corrcoef cov ctc_loss ctc_loss.lengths
    embedding_bag fake_quantize_per_tensor_affine.tensor_qparams
    fill gru.data histc histogram index_reduce linalg_ldl_factor linalg_lu_factor
    linspace.Tensor logspace.Tensor lstm.data masked_fill masked_scatter multinomial nanquantile narrow.Tensor
    normal.Tensor_Tensor normal.float_Tensor
    nonzero_static one_hot poisson quantile rnn_relu.data rnn_tanh.data scaled_dot_product_attention
    searchsorted segment_reduce _torch_random unravel_index
    """.split()
)


def test_few_operators_are_called_one_by_one():
    found = set()
    for case in ALL:
        if case.name in UNDEFINED | REFUSED | READ:
            continue
        for number, sample in enumerate(case.samples):
            if not tensors_of(sample) or largest(sample) > 512:
                continue
            batch = Batch(case, number, dtype_for(case))
            before = C.calls_one_by_one()
            try:
                mapped(batch)
            except (RuntimeError, NotImplementedError, ValueError):
                continue
            if C.calls_one_by_one() > before:
                found.add(case.name)
    assert found == ONE_BY_ONE


# ---- dimensions, trees, nesting


def numbers(*sizes, start=0):
    n = int(np.prod(sizes))
    return F.tensor(np.sin(np.arange(n) * 1.7 + start)).reshape(sizes)


X, W, Y = numbers(3, 4), numbers(5, 4, start=1), numbers(4, start=2)


def test_dimensions_are_those_asked_for():
    for d in (0, 1, -1):
        moved = X.movedim(0, d)
        for o in (0, 1, -1):
            got = vmap(lambda a: a * 2 + 1, in_dims=d, out_dims=o)(moved)
            check([got], [(X * 2 + 1).movedim(0, o)])


def test_arguments_and_results_are_trees():
    f = lambda d, t: {"sum": d["a"] + d["b"], "pair": (t[0] * 2, t[1])}  # noqa: E731
    got = vmap(f, in_dims=({"a": 0, "b": None}, (1, None)), out_dims={"sum": 1, "pair": (0, None)})(
        {"a": X, "b": Y}, (X.T, "as it is")
    )
    check([got["sum"], got["pair"][0]], [(X + Y).T, X * 2])
    assert got["pair"][1] == "as it is"


def test_results_of_operators_with_names_are_trees():
    values_, indices = vmap(lambda a: a.sort())(X)
    check([values_, indices], list(X.sort()))
    check(list(vmap(lambda a: a.max(0))(X)), list(X.max(1)))


def test_levels_nest():
    got = vmap(vmap(vmap(F.dot, (None, 0)), (0, None)), (0, 0))(numbers(2, 3, 4), numbers(2, 5, 4))
    check([got], [numbers(2, 3, 4) @ numbers(2, 5, 4).mT])
    got = vmap(lambda a: vmap(lambda b: vmap(lambda c: a * b + c)(Y))(a * Y))(Y)
    check([got], [Y[:, None, None] * (Y[:, None] * Y)[:, :, None] + Y])


def test_chunks_give_what_the_whole_gives():
    for n in (1, 2, 3, 7):
        check([vmap(lambda a: a.exp(), out_dims=1, chunk_size=n)(X)], [X.exp().T])
    F.manual_seed(1)
    same = vmap(lambda a: a * 0 + F.rand(4), randomness="same", chunk_size=2)(X)
    assert bool((same == same[0]).all())


def test_a_batch_of_none_gives_none():
    got = vmap(lambda a: (a @ W.T).softmax(0))(F.empty(0, 4, dtype=F.float64))
    assert tuple(got.shape) == (0, 5) and got.dtype == F.float64
    assert tuple(vmap(F.linalg.eigvals)(F.empty(0, 2, 2)).shape) == (0, 2)


def test_numbers_promote_as_those_of_one_call():
    cases_ = [
        (F.ones(3, dtype=F.float64), F.ones(4)),
        (F.ones(3), F.ones(4, dtype=F.int64)),
        (F.ones(3, dtype=F.int64), F.tensor(2.0)),
        (F.ones(3), F.tensor(2.0, dtype=F.float64)),
        (F.ones(3, dtype=F.int64), F.ones(4, dtype=F.int32)),
    ]
    for batch, other in cases_:
        got, want = vmap(lambda a, other=other: a * other)(batch), batch[0] * other
        assert got.dtype == want.dtype, (batch.dtype, other.dtype)


# ---- with gradients, in every order


def score(a):
    return (W @ a).sin().prod()


def by_rows(f, *args):
    return F.stack([f(*row) for row in zip(*args)])


def test_gradients_inside_are_those_of_each_call():
    check([vmap(grad(score))(X)], [by_rows(grad(score), X)])
    check([vmap(jacrev(lambda a: (W @ a).sin()))(X)], [by_rows(jacrev(lambda a: (W @ a).sin()), X)])
    check([vmap(jacfwd(lambda a: (W @ a).sin()))(X)], [by_rows(jacfwd(lambda a: (W @ a).sin()), X)])
    check([vmap(hessian(score))(X)], [by_rows(hessian(score), X)])
    double = lambda a: grad(lambda b: grad(score)(b).square().sum())(a)  # noqa: E731
    check([vmap(double)(X)], [by_rows(double, X)])


def test_a_variable_that_is_the_same_for_all_has_a_gradient_for_each():
    loss = lambda w, a: ((w @ a) ** 2).sum()  # noqa: E731
    check([vmap(grad(loss), (None, 0))(W, X)], [by_rows(lambda a: grad(loss)(W, a), X)])
    closed = lambda a: grad(lambda b: vmap(lambda c: c * (b * a).sum())(a).sum())(Y)  # noqa: E731
    check([vmap(closed)(X)], [by_rows(closed, X)])


def test_vmap_is_differentiated():
    f = lambda w: (vmap(lambda a: (w @ a).tanh())(X) ** 2).sum()  # noqa: E731
    g = lambda w: ((X @ w.T).tanh() ** 2).sum()  # noqa: E731
    check([grad(f)(W), hessian(f)(W)], [grad(g)(W), hessian(g)(W)])
    v = numbers(5, 4, start=9)
    check(list(jvp(f, (W,), (v,))), list(jvp(g, (W,), (v,))))
    check([jacfwd(lambda z: vmap(F.dot)(z, X))(X)], [jacrev(lambda z: (z * X).sum(1))(X)])


def test_products_with_jacobians_are_mapped():
    seeds, tangents = numbers(3, 5), numbers(3, 4, start=5)
    f = lambda a: (W @ a).sin()  # noqa: E731
    pulled = lambda a, c: vjp(f, a)[1](c)[0]  # noqa: E731
    check([vmap(pulled)(X, seeds)], [by_rows(pulled, X, seeds)])
    pushed = lambda a, t: jvp(f, (a,), (t,))[1]  # noqa: E731
    check([vmap(pushed)(X, tangents)], [by_rows(pushed, X, tangents)])
    check([vmap(lambda t: pushed(Y, t))(tangents)], [by_rows(lambda t: pushed(Y, t), tangents)])
    value, push = linearize(f, Y)
    check([value, push(X[0])], [f(Y), pushed(Y, X[0])])


def test_jacobians_of_jacobians_agree():
    want = jacrev(jacrev(score))(Y)
    for f in (jacfwd(jacrev(score)), jacrev(jacfwd(score)), hessian(score)):
        check([f(Y)], [want])
    for n in (1, 3, 100):
        check(
            [jacrev(lambda a: (W @ a).sin(), chunk_size=n)(Y)],
            [jacfwd(lambda a: (W @ a).sin(), chunk_size=n)(Y)],
        )


def test_vectorised_jacobians_are_those_of_the_loop():
    from facula.autograd import functional

    f = lambda a, b: ((W @ a).sin() * b.sum(), b**2)  # noqa: E731
    inputs = (Y, numbers(3))
    plain = functional.jacobian(f, inputs)
    for options in ({}, {"strategy": "forward-mode"}):
        got = functional.jacobian(f, inputs, vectorize=True, **options)
        check([x for row in got for x in row], [x for row in plain for x in row])
    g = lambda a, b: (W @ a).sin().sum() * b.prod()  # noqa: E731
    plain, got = functional.hessian(g, inputs), functional.hessian(g, inputs, vectorize=True)
    check([x for row in got for x in row], [x for row in plain for x in row])
    z = Y.clone().requires_grad_()
    (rows,) = F.autograd.grad((W @ z).sin(), z, F.eye(5, dtype=F.float64), is_grads_batched=True)
    check([rows], [jacrev(lambda a: (W @ a).sin())(Y)])


# ---- the two programs that people write: per-sample gradients, ensembles


def small_network():
    F.manual_seed(3)
    return F.nn.Sequential(
        F.nn.Conv2d(1, 4, 3, padding=1),
        F.nn.ReLU(),
        F.nn.MaxPool2d(2),
        F.nn.Conv2d(4, 6, 3, stride=2, groups=2),
        F.nn.Flatten(),
        F.nn.Linear(6 * 2 * 2, 5),
    ).double()


def test_gradients_of_each_example():
    model = small_network()
    params = {n: p.detach() for n, p in model.named_parameters()}
    images, labels = numbers(4, 1, 12, 12), F.tensor([0, 1, 4, 2])

    def loss(p, image, label):
        out = functional_call(model, p, (image.unsqueeze(0),))
        return F.nn.functional.cross_entropy(out, label.unsqueeze(0))

    got = vmap(grad(loss), in_dims=(None, 0, 0))(params, images, labels)
    for name, each in got.items():
        rows = [grad(loss)(params, i, t)[name] for i, t in zip(images, labels)]
        check([each], [F.stack(rows)], name)


def test_an_ensemble_runs_as_one():
    models = []
    for k in range(3):
        F.manual_seed(k)
        models.append(small_network())
        with F.no_grad():
            for p in models[-1].parameters():
                p.mul_(1 + k)
    params, buffers = stack_module_state(models)
    assert all(p.requires_grad and p.is_leaf for p in params.values())
    run = lambda p, b, x: functional_call(models[0], (p, b), (x,))  # noqa: E731
    images = numbers(3, 2, 1, 12, 12)
    check([vmap(run, (0, 0, None))(params, buffers, images[0])], [F.stack([m(images[0]) for m in models])])
    got = vmap(run)(params, buffers, images)
    check([got], [F.stack([m(x) for m, x in zip(models, images)])])
    got.square().sum().backward()
    for m, x in zip(models, images):
        m(x).square().sum().backward()
    for name, p in params.items():
        check([p.grad], [F.stack([dict(m.named_parameters())[name].grad for m in models])], name)


# ---- writes, random numbers, functions with gradients of their own


def test_writes_go_to_the_batch():
    z = X.clone()
    check([vmap(lambda a: a.mul_(2).add_(Y))(z)], [X * 2 + Y])
    check([z], [X * 2 + Y])

    def assigned(a):
        b = F.zeros_like(a)
        b[1:3] = a[:2]
        b[0] = 5.0
        b[a > 0.5] = -1.0
        return b.t_() if b.dim() == 2 else b

    check([vmap(assigned)(X)], [by_rows(assigned, X)])
    check([vmap(lambda a: a.new_zeros(3).add_(a.sum()))(X)], [X.sum(1)[:, None].expand(3, 3)])


def test_what_is_the_same_for_all_is_not_written():
    shared = F.zeros(4, dtype=F.float64)
    for f in (lambda a: shared.add_(a), lambda a: shared.copy_(a), lambda a: shared.__setitem__(0, a[0])):
        with pytest.raises(RuntimeError, match="inplace arithmetic"):
            vmap(f)(X)
    assert not shared.any()
    norm = F.nn.BatchNorm1d(4).double()
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(norm)(numbers(2, 5, 4))
    assert not norm.running_mean.any()
    replace_all_batch_norm_modules_(norm)
    check([vmap(norm)(numbers(2, 5, 4))], [F.stack([norm(x) for x in numbers(2, 5, 4)])])


def test_random_numbers_are_what_randomness_says():
    draws = {
        "rand": lambda a: a * 0 + F.rand(4),
        "dropout": lambda a: F.nn.functional.dropout(a * 0 + 1, 0.5),
        "bernoulli": lambda a: F.bernoulli(a * 0 + 0.5),
        "randperm": lambda a: a * 0 + F.randperm(4),
        "normal_": lambda a: F.empty_like(a).normal_(),
    }
    x = F.ones(16, 4)
    for name, f in draws.items():
        with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
            vmap(f)(x)
        same = vmap(f, randomness="same")(x)
        assert bool((same == same[0]).all()), name
        assert not bool((vmap(f, randomness="different")(x) == same[0]).all()), name
    assert tuple(vmap(lambda a: F.multinomial(a, 2), randomness="different")(x).shape) == (16, 2)


class Product(F.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y.sin(), g * x * y.cos()


class Doubled(F.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2

    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == x.shape[in_dims[0]]
        return Doubled.apply(x), in_dims[0]


def test_functions_with_gradients_of_their_own_are_mapped():
    plain = lambda x, y: x * y.sin()  # noqa: E731
    for dims in ((0, 0), (0, None), (None, 0)):
        args = [X if d == 0 else Y for d in dims]
        check([vmap(Product.apply, dims)(*args)], [vmap(plain, dims)(*args)])
        for k in (0, 1):
            f = vmap(grad(lambda *a: Product.apply(*a).square().sum(), argnums=k), dims)
            g = vmap(grad(lambda *a: plain(*a).square().sum(), argnums=k), dims)
            check([f(*args)], [g(*args)])
    f = grad(lambda y: vmap(lambda x: Product.apply(x, y))(X).sum())
    check([f(Y)], [grad(lambda y: (X * y.sin()).sum())(Y)])
    check([vmap(Doubled.apply)(X), vmap(grad(lambda a: Doubled.apply(a).sum()))(X)], [X * 2, X * 0 + 2])


def test_autocast_decides_before_the_batch():
    x = X.float()
    with F.autocast("cpu", dtype=F.bfloat16):
        outside = vmap(lambda a: W.float() @ a)(x)

    def inside(a):
        with F.autocast("cpu", dtype=F.bfloat16):
            return W.float() @ a

    assert outside.dtype == vmap(inside)(x).dtype == F.bfloat16


# ---- what a tensor of the batch shows, and what is refused


def test_a_tensor_of_the_batch_has_the_shape_of_one():
    seen = []

    def f(a):
        seen.append((tuple(a.shape), a.dim(), a.size(), len(a), a.numel(), a.stride(), repr(a)))
        return a

    vmap(f)(F.arange(6).reshape(2, 3))
    shape, dim, size, length, count, stride, text = seen[0]
    assert (shape, dim, tuple(size), length, count, stride) == ((3,), 1, (3,), 3, 3, (1,))
    assert text == "BatchedTensor(lvl=1, bdim=0, value=\n    tensor([[0, 1, 2],\n            [3, 4, 5]])\n)"
    seen.clear()
    vmap(vmap(lambda a: seen.append(repr(a)) or a))(F.arange(2).reshape(1, 2))
    assert seen[0] == (
        "BatchedTensor(lvl=2, bdim=0, value=\n    BatchedTensor(lvl=1, bdim=0, value=\n"
        "        tensor([[0, 1]])\n    )\n)"
    )
    vmap(lambda a: seen.append(debug_unwrap(a)) or a)(X)
    assert seen[-1].data_ptr() == X.data_ptr()


REFUSALS = [
    (lambda: vmap(lambda a: a.sum().item())(X), RuntimeError, "calling .item() on a Tensor"),
    (lambda: vmap(lambda a: float(a.sum()))(X), RuntimeError, "calling .item() on a Tensor"),
    (lambda: vmap(lambda a: a if a.sum() > 0 else -a)(X), RuntimeError, "data-dependent control flow"),
    (lambda: vmap(lambda a: a.nonzero())(X), RuntimeError, "can output dynamic shape"),
    (lambda: vmap(lambda a: a[a > 0])(X), RuntimeError, "dynamic shape"),
    (lambda: vmap(lambda a: a.numpy())(X), RuntimeError, "doesn't have storage"),
    (lambda: vmap(lambda a: F.add(a, 1, out=F.empty(4)))(X), RuntimeError, "out="),
    (lambda: vmap(lambda a: a.sum().backward())(X), RuntimeError, "called inside a functorch transform"),
    (
        lambda: vmap(lambda a: a, in_dims=(0, 0))(X),
        ValueError,
        "in_dims is not compatible with the structure",
    ),
    (lambda: vmap(lambda a: a, in_dims=5)(X), ValueError, "expected in_dim to satisfy -2 <= in_dim < 2"),
    (lambda: vmap(lambda a: a, in_dims="a")(X), ValueError, "expected `in_dims` to be int or a"),
    (lambda: vmap(lambda a: a)(), ValueError, "got no inputs"),
    (lambda: vmap(lambda a: a)(3), ValueError, "We cannot vmap over non-Tensor arguments"),
    (lambda: vmap(lambda a, b: a)(X, W), ValueError, "same size in the mapped dimension, got sizes [3, 5]"),
    (lambda: vmap(lambda a: 3)(X), ValueError, "must only return Tensors, got type <class 'int'>"),
    (lambda: vmap(lambda a: (a, a), out_dims=(0, 1, 2))(X), ValueError, "out_dims is not compatible"),
    (lambda: vmap(lambda a: a, out_dims=2)(X), IndexError, "Dimension out of range"),
    (lambda: vmap(lambda a: a, out_dims=None)(X), ValueError, "can not return a BatchedTensor when"),
    (lambda: vmap(lambda a: a, randomness="maybe")(X), RuntimeError, "Only allowed values for randomness"),
    (lambda: vmap(lambda a: a, chunk_size=0)(X), ValueError, "chunk_size should be None or greater than 0"),
    (lambda: vmap(lambda a: a @ W)(X), RuntimeError, "[5, 4]"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_what_is_refused_says_why(number):
    f, error, text = REFUSALS[number]
    with pytest.raises(error) as e:
        f()
    assert text in str(e.value)
    assert C.vmap_level() == 0


def written_by_set(d, y):
    d[0] = -y[0] * y[1]
    d[1] = y[0] - y[1] ** 2


def written_by_slice(d, y):
    d[:1] = -y[:1] * y[1:]
    d[1:].copy_(y[:1] - y[1:] ** 2)


def written_by_copy_and_add(d, y):
    d.copy_(y * 0)
    d[0].add_(-y[0] * y[1])
    d.narrow(0, 1, 1).copy_(y[0] - y[1] ** 2)


@pytest.mark.parametrize("write", [written_by_set, written_by_slice, written_by_copy_and_add])
@pytest.mark.parametrize(
    "make",
    [
        F.empty_like,
        F.zeros_like,
        lambda y: y.new_zeros(2),
        lambda y: F.zeros(2, dtype=y.dtype) + 0 * y.detach(),
        lambda y: F.stack([y.detach(), y.detach()]).t()[:, 0].clone(),
    ],
)
def test_jacobians_of_buffers_that_are_written_part_by_part(make, write):
    def f(y):
        d = make(y)
        write(d, y)
        return d

    y = numbers(3, 2).double()
    want = F.stack([F.stack([F.stack([-b, -a]), F.stack([F.ones_like(a), -2 * b])]) for a, b in y])
    assert F.allclose(jacrev(f)(y[0]), want[0])
    assert F.allclose(jacfwd(f)(y[0]), want[0])
    assert F.allclose(vmap(jacrev(f))(y), want)
    assert F.allclose(vmap(jacfwd(f))(y), want)
    jacobian = F.autograd.functional.jacobian
    assert F.allclose(jacobian(f, y[0], vectorize=True), want[0])
    assert F.allclose(jacobian(f, y[0], vectorize=True, strategy="forward-mode"), want[0])
    x = y[0].clone().requires_grad_()
    (rows,) = F.autograd.grad(f(x), x, F.eye(2).double(), is_grads_batched=True)
    assert F.allclose(rows, want[0])
    total = lambda y: (f(y) ** 2).sum()  # noqa: E731
    assert F.allclose(vmap(hessian(total))(y), F.stack([jacrev(jacrev(total))(row) for row in y]))


def test_in_place_forms_inside_of_a_batch_keep_what_their_gradient_needs():
    x = numbers(3, 4).double()
    f = lambda x: (x * 1).cumprod_(0).sum()  # noqa: E731
    assert F.allclose(vmap(grad(f))(x), F.stack([grad(lambda x: x.cumprod(0).sum())(row) for row in x]))
