"""vmap: every operator of the registry, batched over each tensor argument and over all, against the loop over
slices; gradients through it; nesting; what it refuses.
"""

import contextlib

import numpy as np
import pytest
from facula.func import vmap
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
REFUSED = {"nonzero", "resize_", "resize_as_"}
# Of which each call of a sample gives another number of tensors or elements.
READ = {"where.positions"}


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
        if "is not implemented" in str(e):
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
