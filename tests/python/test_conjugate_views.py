"""conj() of complex numbers is a view, as in PyTorch: writes reach through, views of it are conjugated too.

Every answer is NumPy's on copies, or what follows from z and conj(z) being two ways to see one memory.
"""

import copy
import io
import pickle

import numpy as np
import pytest

import facula as F
from facula import nn

Z = [1 + 2j, 3 - 1j]


def z():
    return F.tensor(Z)


WRITES = {
    "mul_": (lambda c: c.mul_(2j), lambda a: a * 2j),
    "add_ of a vector": (lambda c: c.add_(F.tensor([1j, 2.0])), lambda a: a + np.array([1j, 2.0])),
    "of one element": (lambda c: c[0].zero_(), lambda a: a * [0, 1]),
    "by an index": (lambda c: c.__setitem__(1, 5j), lambda a: np.array([a[0], 5j])),
    "by a mask": (lambda c: c.__setitem__(F.tensor([True, False]), 7j), lambda a: np.array([7j, a[1]])),
    "out=": (lambda c: F.add(c, 1j, out=c), lambda a: a + 1j),
    "copy_": (lambda c: c.copy_(F.tensor([1j, 2.0])), lambda a: np.array([1j, 2.0])),
    "copy_ of its memory": (lambda c: c.copy_(c.conj()), np.conj),
    "fill_ of detach()": (lambda c: c.detach().fill_(1j), lambda a: np.array([1j, 1j])),
    "through .data": (lambda c: c.data.mul_(3), lambda a: a * 3),
    "its real part": (lambda c: c.real.mul_(3), lambda a: a.real * 3 + 1j * a.imag),
    "its imaginary part": (lambda c: c.imag.add_(3), lambda a: a + 3j),
    "an element of that": (lambda c: c.imag.__setitem__(0, 9), lambda a: np.array([a[0].real + 9j, a[1]])),
    "conj_physical_": (lambda c: c.conj_physical_(), np.conj),
    "with itself": (lambda c: c.mul_(c), lambda a: a * a),
    "with its memory": (lambda c: c.mul_(c.conj()), lambda a: a * a.conj()),
    "masked_fill_": (lambda c: c.masked_fill_(F.tensor([False, True]), 4j), lambda a: np.array([a[0], 4j])),
    "index_add_": (lambda c: c.index_add_(0, F.tensor([1]), F.tensor([2j])), lambda a: a + [0, 2j]),
    "unsqueeze_": (lambda c: c.unsqueeze_(0).mul_(2j), lambda a: a * 2j),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_a_conjugate_reach_what_it_is_the_conjugate_of(name):
    write, expected = WRITES[name]
    x = z()
    c = x.conj()
    before = x._version
    write(c)
    want = expected(np.conj(np.array(Z)))
    np.testing.assert_allclose(c.resolve_conj().numpy().reshape(-1), want, rtol=1e-6)
    np.testing.assert_allclose(x.numpy(), want.conj(), rtol=1e-6)
    assert c.is_conj() and not x.is_conj()
    if "data" not in name:
        assert x._version > before


def test_every_view_of_a_conjugate_is_one_and_nothing_else():
    x = F.tensor([[1 + 2j, 3 - 1j, 2j]])
    views = [
        x.conj(),
        x.mH,
        x.T.conj(),
        x[0].conj()[1:],
        x.conj().reshape(3),
        x.conj().expand(2, 3),
        x.conj().unbind(1)[1],
        x.conj().contiguous(),
        x.conj().to(F.complex64),
        x.adjoint(),
        x.conj().detach(),
        x.conj().view(3, 1),
        x.conj().diagonal(),
        x.conj().as_strided((2,), (1,)),
    ]
    assert all(v.is_conj() for v in views)
    apart = [
        x.conj().conj(),
        x.conj().clone(),
        x.conj() * 1,
        x.conj().resolve_conj(),
        F.cat([x.conj()]),
        x.conj().to(F.complex128),
        x.conj_physical(),
        x.conj().abs(),
        x.conj()[:, F.tensor([0])],
    ]
    assert not any(v.is_conj() for v in apart)
    real = F.tensor([1.0])
    assert real.conj() is real
    assert x.conj().imag.is_neg() and not x.conj().real.is_neg() and not x.imag.is_neg()
    assert x.conj().imag.tolist() == [[-2, 1, -2]] and not x.conj().imag.resolve_neg().is_neg()
    assert F.is_conj(x.conj()) and F.is_neg(x.conj().imag) and not F.resolve_conj(x.conj()).is_conj()


def test_values_of_a_conjugate_are_read_conjugated():
    x, want = z(), np.conj(np.array(Z, np.complex64))
    c = x.conj()
    assert c.tolist() == want.tolist() and c[0].item() == 1 - 2j and complex(c[0]) == 1 - 2j
    assert repr(c) == repr(F.tensor(want)) and str(c.imag) == str(F.tensor(want.imag.copy()))
    assert f"{c[0]}" == f"{F.tensor(want)[0]}"
    assert F.equal(c, F.tensor(want)) and bool((c == F.tensor(want)).all())
    for f in (
        F.exp,
        F.sum,
        F.cumsum,
        lambda t, *d: F.cat([t, t]),
        lambda t, *d: t @ t,
        F.angle,
        lambda t, *d: F.stack([t, t]).mH @ t,
        lambda t, *d: F.fft.fft(t),
        lambda t, *d: t.imag + t.real,
    ):
        dims = (0,) if f in (F.cumsum,) else ()
        np.testing.assert_allclose(f(c, *dims).numpy(), f(F.tensor(want), *dims).numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        F.linalg.inv(F.eye(2) * c).mH.resolve_conj().numpy(),
        np.linalg.inv(np.eye(2) * want).conj().T,
        rtol=1e-5,
    )


def test_memory_of_a_conjugate_is_not_shown_as_it_is():
    c = z().conj()
    for shown in (
        lambda: c.numpy(),
        lambda: np.asarray(c),
        lambda: F.view_as_real(c),
        lambda: c.imag.numpy(),
        lambda: c.view(F.float32),
    ):
        with pytest.raises(RuntimeError, match="resolve_"):
            shown()
    with pytest.raises(BufferError, match="resolve_conj"):
        c.__dlpack__()
    np.testing.assert_array_equal(c.numpy(force=True), np.conj(np.array(Z)))


def test_copies_and_files_keep_the_memory_that_conjugates_share():
    x = z()
    for c in (copy.deepcopy(x.conj()), copy.copy(x.conj())):
        assert c.is_conj() and c.tolist() == x.conj().tolist()
    assert pickle.loads(pickle.dumps(x.conj())).tolist() == x.conj().tolist()
    assert x.conj().storage()[0] == Z[0] and x.conj().imag.untyped_storage().nbytes() == 16
    file = io.BytesIO()
    F.save([x, x.conj()], file)
    file.seek(0)
    a, c = F.load(file)
    assert c.is_conj() and c.tolist() == x.conj().tolist()
    c.mul_(2j)
    np.testing.assert_allclose(a.numpy(), (np.conj(np.array(Z)) * 2j).conj())
    file = io.BytesIO()
    F.save(x.conj().imag, file)
    file.seek(0)
    assert F.load(file).is_neg() and pickle.loads(pickle.dumps(x.conj().imag)).tolist() == [-2, 1]
    w = F.zeros(2, dtype=F.complex64)
    w.data = x.conj()
    assert w.is_conj() and w.tolist() == x.conj().tolist()


def gradient(f, *at):
    leaves = [F.tensor(v, dtype=F.complex128, requires_grad=True) for v in at]
    f(*leaves).backward()
    return [v.grad for v in leaves]


FUNCTIONS = {
    "read": lambda x: (x.conj() * F.tensor([1j, 2.0])).abs().sum(),
    "written as a whole": lambda x: _written(x, lambda c: c.mul_(F.tensor([2j, 3.0]))),
    "written in part": lambda x: _written(x, lambda c: c[0].mul_(3j)),
    "written in its real part": lambda x: _written(x, lambda c: c.real.mul_(3)),
    "written in its imaginary part": lambda x: _written(x, lambda c: c.imag.mul_(3)),
    "written from its memory": lambda x: _written(x, lambda c: c.copy_(c.conj() * 2)),
    "conjugated twice": lambda x: _written(x, lambda c: c.conj()[1:].mul_(2j)),
}


def _written(x, write):
    w = x * 1
    c = w.conj()
    write(c)
    return (w * F.tensor([1 + 1j, 2.0])).abs().sum() + (c * c).real.sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_go_through_conjugates_that_were_written(name):
    f, step = FUNCTIONS[name], 1e-6
    (got,) = gradient(f, Z)
    assert not got.is_conj()
    want = np.zeros(2, complex)
    for k in range(2):
        for unit in (1, 1j):
            there = np.array(Z, complex)
            there[k] += unit * step
            back = np.array(Z, complex)
            back[k] -= unit * step
            slope = (f(F.tensor(there)) - f(F.tensor(back))).item() / (2 * step)
            want[k] += slope * unit
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_a_gradient_may_be_given_as_a_conjugate():
    x = F.tensor(Z, requires_grad=True)
    (x * 2).backward(F.tensor([1j, 2.0 + 0j]).conj())
    assert x.grad.tolist() == [-2j, 4]
    with pytest.raises(RuntimeError, match="leaf"):
        x.conj().mul_(2)


def test_parameters_may_be_conjugates():
    def trained(start, optimizer):
        p = nn.Parameter(start)
        steps = optimizer([p])
        for _ in range(3):
            steps.zero_grad()
            (p * p.conj() * F.tensor([1.0, 2.0])).real.sum().backward()
            steps.step()
        return p.detach().resolve_conj()

    for make in (lambda p: F.optim.SGD(p, 0.1, momentum=0.9), lambda p: F.optim.Adam(p, 0.1)):
        plain = trained(F.conj_physical(z()), make)
        np.testing.assert_allclose(trained(z().conj(), make).numpy(), plain.numpy(), rtol=1e-6)


def test_forward_mode_conjugates_tangents():
    fwd = F.autograd.forward_ad
    with fwd.dual_level():
        d = fwd.make_dual(F.tensor([1 + 2j]), F.tensor([3 - 1j]))
        assert fwd.unpack_dual(d.conj()).tangent.tolist() == [3 + 1j]
        assert fwd.unpack_dual(d.conj() * 2j).tangent.tolist() == [-2 + 6j]
        assert fwd.unpack_dual(d.conj().imag).tangent.tolist() == [1]
        w = d * 1
        w.conj().mul_(2j)
        assert fwd.unpack_dual(w).tangent.tolist() == [-2 - 6j]
