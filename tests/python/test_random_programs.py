"""Random programs (support/random_programs.py), and by name what they once found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from facula.program import load, trace
from facula.utils.checkpoint import checkpoint
from support.random_programs import Doubled, Same, Square
from test_program import check, same

import facula
from facula import nn, optim
from facula.nn import functional as F

PROGRAMS = Path(__file__).parent / "support" / "random_programs.py"


def test_random_programs():
    """FACULA_PROGRAMS makes as many of them as it says: 3,000 take some two minutes."""
    count = os.environ.get("FACULA_PROGRAMS", "250")
    command = [sys.executable, str(PROGRAMS), "--count", count]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        command, env=os.environ | {"FACULA_VERIFY": "1", "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


# ---- random numbers


def test_draws_that_nobody_reads_move_the_generator_on():
    def f(x):
        facula.rand(3)
        return x * facula.rand(2)

    program = trace(f, facula.ones(2))
    facula.manual_seed(3)
    expected, state = f(facula.ones(2)), facula.get_rng_state()
    facula.manual_seed(3)
    same(program(facula.ones(2)), expected)
    assert facula.equal(facula.get_rng_state(), state)


def test_a_file_shows_strides_of_single_elements_as_the_program_does(tmp_path):
    def f(x):
        x.mT[..., 1:] -= 2
        return x * 1

    program = trace(f, facula.zeros(3, 1, 5, 1))
    program.save(tmp_path / "p")
    assert str(load(tmp_path / "p")) == str(program)
    x = facula.randn(3, 1, 5, 1)
    check(f, x)


def test_a_view_of_one_row_is_assigned_to_itself():
    """The program gives a dimension of size 1 another stride than eager mode."""

    def f(x):
        x.mT[..., 1:] -= 2
        return x * 1

    for sizes in ((3, 1), (2, 3, 1), (1, 3)):
        check(f, facula.randn(sizes))


def test_draws_keep_their_order_where_the_later_one_is_read_first():
    def f(x):
        a = facula.rand(4)
        b = facula.rand(4).sort()[0] + x
        return b * 2, a.sort()[0] * b

    program = trace(f, facula.ones(4))
    facula.manual_seed(3)
    expected = f(facula.ones(4))
    facula.manual_seed(3)
    same(program(facula.ones(4)), expected)


def test_a_generator_of_its_own_is_refused_by_a_file(tmp_path):
    g = facula.Generator().manual_seed(1)
    program = trace(lambda x: x * facula.rand(2, generator=g), facula.ones(2))
    with pytest.raises(NotImplementedError, match="save: the program draws from a generator of its own"):
        program.save(tmp_path / "program.pt")


# ---- sizes


def test_sizes_among_the_arguments_of_calls_vary():
    program = trace(lambda x: x.reshape(-1) * 2, facula.ones(3, 4, 3), dynamic=True)
    x = facula.rand(7, 2, 7)
    same(program(x), x.reshape(-1) * 2)


def test_a_size_that_is_one_by_a_guard_is_broadcast():
    def f(x, y):
        return facula.minimum(x, F.max_pool1d(y, 2))

    x, y = facula.randn(1, 5), facula.randn(5, 2, 2)
    same(trace(f, x, y, dynamic=True)(x, y), f(x, y))


def test_kernels_without_elements_check_no_index():
    x = facula.ones(3, 0)
    same(trace(lambda x: x.scatter_add(-1, x.long() * 0, x), x)(x), x)
    empty, none = facula.zeros(0), facula.zeros(0, dtype=facula.int64)
    check(lambda x: (x[none].sum(), x[none].prod() + 1, x[none].long().sum(), x[none] * 2), empty)
    check(lambda x: x[none].var_mean(), empty)
    check(
        lambda x, y: (x.index_select(1, facula.tensor([0, -1])) * y, y * 1), facula.ones(0, 3), facula.ones(2)
    )


# ---- writes


def test_an_argument_that_lies_apart_is_written_and_read_through_views():
    def f(x):
        x.add_(1)
        return x.unfold(1, 2, 1) * 1

    check(f, facula.rand(3, 3))
    ours, theirs = (facula.arange(18.0).reshape(6, 3)[::2] for _ in range(2))
    same(trace(f, ours)(ours), f(theirs))
    same(ours, theirs)


def test_tensors_made_of_numbers_are_made_anew_at_each_call():
    def f(x):
        total = facula.tensor([0.0, 0.0, 0.0])
        total.add_(x)
        return total, facula.as_tensor([1.0])

    program = trace(f, facula.ones(3))
    for _ in range(2):
        total, one = program(facula.ones(3))
        same(total, facula.ones(3))
        same(one.add_(1), facula.tensor([2.0]))
    marked = trace(lambda x: Doubled.apply(facula.tensor([1.0, 2.0])) * x, facula.ones(2))
    same([marked(facula.ones(2)), marked(facula.ones(2))], [facula.tensor([2.0, 4.0])] * 2)


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y[:, 0], lambda y: y.detach()])
@pytest.mark.parametrize("write", [lambda z: z.logical_not_(), lambda z: z.lt_(0.5)])
def test_in_place_forms_without_a_gradient_end_that_of_what_they_overwrite(part, write):
    def f(x):
        y = x * 3
        write(part(y))
        return y * 1

    check(f, facula.rand(2, 3, requires_grad=True))


def test_an_unrecorded_write_leaves_history_as_it_was():
    def f(x):
        y = x * 3
        with facula.no_grad():
            y[:, 0].logical_not_()
        return y * 1

    check(f, facula.rand(2, 3, requires_grad=True))


@pytest.mark.parametrize("write", ["unfold", "expand", "part"])
def test_writes_where_elements_share_memory_are_refused(write):
    views = {
        "unfold": lambda x: x.unfold(0, 2, 1).masked_fill_(x.unfold(0, 2, 1) > 0, 3.0),
        "expand": lambda x: x.expand(2, 4).fill_(1),
        "part": lambda x: x.expand(2, 4)[:1].add_(1),
    }
    with pytest.raises(RuntimeError, match="elements share memory"):
        trace(lambda x: (views[write](x), x * 1)[1], facula.ones(4))
    wide = facula.ones(1, 4).expand(3, 4)
    with pytest.raises(RuntimeError, match="a view of .* elements share memory"):
        trace(lambda x: x[:1].add_(1), wide)


def test_a_write_through_strides_of_any_order_knows_bools():
    check(lambda x: (x > 0).fill_diagonal_(True), facula.randn(4, 3))
    check(lambda x: (x * 1).as_strided((2,), (3,)).add_(1), facula.randn(4, 3))


def test_a_mask_of_one_element_is_written_through():
    def f(x):
        y = x.sum()
        y[y > 0] = 7
        return y

    check(f, facula.ones(3))
    check(f, -facula.ones(3))


def test_out_takes_the_size_of_its_result_where_it_has_no_elements():
    def f(x):
        out = facula.empty(0)
        facula.add(x, 1, out=out)
        return out * 2

    check(f, facula.ones(3))
    with pytest.raises(NotImplementedError, match=r"add: with out= changes the size of a tensor from \[2\]"):
        trace(lambda x: facula.add(x, 1, out=facula.empty(2)), facula.ones(3))


def test_sizes_of_tensors_from_outside_stay():
    b = facula.ones(2, 3)
    with pytest.raises(NotImplementedError, match="t_: in place changes the sizes or strides"):
        trace(lambda x: b.t_() @ x, facula.ones(2))
    with pytest.raises(NotImplementedError, match="changes the sizes or strides of its argument 0"):
        trace(lambda x: x.t_() * 1, facula.ones(2, 3))
    with pytest.raises(NotImplementedError, match="t_: in place changes the sizes or strides"):
        trace(lambda x: b.contiguous().t_() @ x, facula.ones(2))
    check(lambda x: x.squeeze_() * 1, facula.ones(2, 3))


def test_writes_that_conj_would_show_are_refused():
    z = facula.ones(2, dtype=facula.complex64)
    for f in (lambda z: z.conj().mul_(2), lambda z: (z.conj(), z.mul_(2))[0] * 1):
        with pytest.raises(NotImplementedError, match="conj"):
            trace(f, z)
    check(lambda z: (z.real.mul_(3), z * 1)[1], z)


def test_what_is_written_in_place_is_not_read_through_a_view_by_the_same_kernel():
    def f(x):
        first = x[:, 0]
        x.sub_(first * x, alpha=0.5)
        return x * 1

    check(f, facula.rand(3, 3))
    check(lambda x: (x.add_(x.t().diagonal() * 1), x * 1)[1], facula.rand(3, 3))


def test_a_result_of_fewer_elements_reads_what_was_there_before_the_write():
    def f(x):
        x.add_(x)
        first = x[:, :1]
        return first * first

    check(f, facula.rand(3, 4))


def test_a_write_without_elements_writes_nothing():
    def f(x):
        total = x.sum()
        empty = total.expand(3, 0)
        empty[:1] = empty.sum()
        return total * 1

    check(f, facula.ones(3))


# ---- history


def test_a_step_of_an_optimizer_has_no_history():
    """A second backward() behind it ends at the parameters."""
    for kind in (optim.SGD, optim.Adam, optim.RMSprop):
        pairs = []
        for _ in range(2):
            facula.manual_seed(0)
            model = nn.Linear(3, 3)
            pairs.append((model, kind(model.parameters(), lr=0.1)))

        def steps(model, optimizer):
            def f(x):
                for _ in range(2):
                    optimizer.zero_grad()
                    model(x).square().sum().backward()
                    optimizer.step()

            return f

        x = facula.rand(4, 3)
        program = trace(steps(*pairs[0]), x)
        for _ in range(2):
            program(x)
            steps(*pairs[1])(x)
        for a, b in zip(pairs[0][0].parameters(), pairs[1][0].parameters()):
            same(a.detach(), b.detach(), 1e-5)
            same(a.grad, b.grad, 1e-5)


def test_views_made_without_recording_have_no_history():
    w = facula.rand(3, 3, requires_grad=True)

    def f(x):
        with facula.no_grad():
            v = w[0]
        return (v * x).sum() + (w * x).sum()

    program = trace(f, facula.ones(3))
    grads = []
    for g in (program, f):
        w.grad = None
        g(facula.ones(3)).backward()
        grads.append(w.grad)
    same(*grads)


def test_what_hands_a_tensor_back_keeps_its_history():
    def f(x):
        y = x * 2
        with facula.no_grad():
            z = y.contiguous()
        return z * 3

    check(f, facula.rand(3, requires_grad=True))


def test_a_tensor_knows_that_a_write_gave_it_history():
    w = facula.rand(3, requires_grad=True)
    buffer = facula.zeros(3)

    def f(x):
        buffer.copy_(x)
        buffer.mul_(w)
        first = facula.autograd.grad((buffer * buffer).sum(), w, retain_graph=True)[0]
        buffer.detach_()
        return first

    program = trace(f, facula.ones(3))
    same(program(facula.ones(3)), 2 * w.detach(), 1e-6)


def test_functions_read_captured_tensors_as_they_were_written():
    w = facula.rand(3, requires_grad=True)
    buffer = facula.zeros(3)

    def f(x):
        buffer.copy_(x * 2)
        return Square.apply(buffer) * w

    x = facula.rand(3)
    same(trace(f, x)(x), 4 * x * x * w, 1e-6)


def test_a_gradient_that_is_not_reached_is_none():
    a, b = facula.rand(2, requires_grad=True), facula.rand(2, requires_grad=True)

    def f(x):
        (g,) = facula.autograd.grad((a * x).sum(), b, allow_unused=True)
        return x * (1 if g is None else 2)

    same(trace(f, facula.ones(2))(facula.ones(2)), facula.ones(2))


def test_an_argument_that_gets_history_is_no_leaf():
    w = facula.rand(3, requires_grad=True)

    def f(x):
        x.add_(w)
        x.sum().backward()

    program = trace(f, facula.ones(3))
    program(facula.ones(3))
    same(w.grad, facula.ones(3))


def test_a_reentrant_checkpoint_of_what_requires_nothing_has_no_history():
    w = facula.rand(3, requires_grad=True)
    f = lambda x: checkpoint(lambda t: t * w, x, use_reentrant=True)  # noqa: E731
    with pytest.warns(UserWarning):
        assert not f(facula.ones(3)).requires_grad
    assert not trace(f, facula.ones(3))(facula.ones(3)).requires_grad


def test_parameters_that_miss_steps_are_refused_where_their_steps_are_counted_together():
    def parameters():
        p = [facula.ones(2, requires_grad=True) for _ in range(2)]
        return p, optim.Adam(p, lr=0.1)

    (a, b), optimizer = parameters()

    def f(x):
        optimizer.zero_grad()
        (a * b * x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        (a * x).sum().backward()
        optimizer.step()

    with pytest.raises(NotImplementedError, match="Adam: a step of some of the parameters"):
        trace(f, facula.ones(2))

    (a, b), optimizer = parameters()
    (c, d), other = parameters()

    def step(x):
        optimizer.zero_grad()
        (a * b * x).sum().backward()
        optimizer.step()

    program = trace(step, facula.ones(2))
    program(facula.ones(2))
    (c * d).sum().backward()
    other.step()
    for opt, p in ((optimizer, a), (other, c)):  # an eager step of one of two
        opt.zero_grad()
        p.sum().backward()
        opt.step()
    assert [float(s["step"]) for s in optimizer.state.values()] == [2, 1]
    same([a.detach(), b.detach()], [c.detach(), d.detach()], 1e-6)
    with pytest.raises(ValueError, match="(the count of steps|the state of a parameter) of Adam"):
        program(facula.ones(2))


# ---- elements that Python looks at


@pytest.mark.parametrize(
    "look",
    [
        lambda x, k: x * k.item(), lambda x, k: x * int(k), lambda x, k: x[k], lambda x, k: x[:k],
        lambda x, k: x if k > 1 else x * 2, lambda x, k: x * k.tolist(), lambda x, k: x.clamp(k),
    ],
)  # fmt: skip
def test_elements_of_captured_tensors_that_python_looked_at_are_checked(look):
    k = facula.tensor(1)
    try:
        program = trace(lambda x: look(x, k), facula.ones(3))
    except NotImplementedError as e:
        assert "looks at the elements" in str(e)
        return
    same(program(facula.ones(3)), look(facula.ones(3), k))
    k.fill_(2)
    with pytest.raises(ValueError, match="looked at the elements of a tensor"):
        program(facula.ones(3))


def test_elements_that_the_function_has_written_are_not_there_to_look_at():
    k = facula.tensor(1)

    def f(x):
        k.add_(1)
        return x * int(k)

    with pytest.raises(RuntimeError, match="which it has written to"):
        trace(f, facula.ones(3))
    assert int(k) == 1


@pytest.mark.parametrize(
    "look",
    [lambda x: x.item(), lambda x: x.tolist(), lambda x: bool(x.long()), lambda x: range(x.long())],
    ids=["item", "tolist", "bool", "index"],
)
def test_calls_that_look_at_elements_are_refused_by_name(look):
    with pytest.raises((NotImplementedError, RuntimeError), match="looks at the elements of a tensor"):
        trace(lambda x: look(x.sum()), facula.ones(3))


# ---- kernels


def test_a_half_maximum_is_picked_by_an_index():
    index = facula.tensor([0, -1, 0])
    check(lambda x: x.max(-1)[0][index], facula.rand(2, 2).half())


def test_programs_in_files_keep_draws_that_nobody_reads(tmp_path):
    program = trace(lambda x: (facula.rand(3), x * facula.rand(2))[1], facula.ones(2))
    program.save(tmp_path / "program.pt")
    loaded = load(tmp_path / "program.pt")
    facula.manual_seed(3)
    expected = program(facula.ones(2))
    facula.manual_seed(3)
    same(loaded(facula.ones(2)), expected)


# ---- memory


def test_a_written_input_with_gaps_is_saved_as_it_lies(tmp_path):
    def f(x):
        x.add_(1)
        y = Doubled.apply(x)
        y.fill_diagonal_(1)
        return y.detach() * 1, x.t() * 2

    x = facula.arange(24.0).view(8, 3)[::2]
    program = trace(f, x)
    program.save(tmp_path / "p")
    assert str(load(tmp_path / "p")) == str(program)
    check(f, x)


def test_a_view_with_strides_of_its_own_sees_more_than_its_operand():
    def of_parts(x):
        x.real.as_strided((2,), (1,)).index_fill_(-1, facula.tensor([0, 1]), 2)
        return x * 1

    def of_a_row(c):
        part = c.unbind(1)[0].detach().as_strided((2,), (1,))
        part[-1].as_strided((2,), (1,)).mul_(5)
        return part * 1, c * 1

    check(of_parts, facula.tensor(1 + 3j))
    check(of_a_row, facula.arange(16.0).view(4, 4))


def test_memory_beside_a_written_tensor_is_refused():
    def writes(x):
        x.as_strided((2, 2), (2, 1)).mul_(2)
        return x * 1

    def reads(x):
        x.add_(1)
        return x.as_strided((2, 2), (2, 1)) * 1

    for f in (writes, reads):
        with pytest.raises(NotImplementedError, match="beside a tensor of shape"):
            trace(f, facula.arange(8.0).view(4, 2)[:, 0])


def test_a_write_relies_on_elements_that_are_apart():
    def f(x):
        x.unfold(-2, 2, 1).tril_()
        return x * 1

    program = trace(f, facula.ones(2, 2), dynamic=True)
    same(program(facula.ones(2, 2)), f(facula.ones(2, 2)))
    with pytest.raises(ValueError, match="relied on sizes"):
        program(facula.ones(6, 6))


def test_strides_of_single_elements_order_the_dimensions(tmp_path):
    def f(x, y):
        z = facula.maximum(x, y)
        z.masked_scatter_(z > 0, z * 2)
        return z * 1

    x, y = facula.arange(-2.0, 3).view(5, 1), facula.arange(3.0).view(1, 1, 3).permute(2, 1, 0)
    program = check(f, x, y)
    program.save(tmp_path / "p")
    same(load(tmp_path / "p")(x, y), f(x, y))


def test_parts_of_unsafe_split_have_no_history_under_no_grad():
    x = facula.ones(3, 2, requires_grad=True)
    with facula.no_grad():
        parts = [*x.unsafe_split(1), *x.unsafe_chunk(2), *x.unsafe_split_with_sizes([1, 2])]
    assert not any(t.requires_grad or t[0].requires_grad for t in parts)
    assert all(t.requires_grad for t in x.unsafe_split(1))


@pytest.mark.parametrize("is_written", [False, True])
def test_writes_to_an_argument_that_a_custom_function_hands_back_are_refused(is_written):
    def f(x):
        y = Same.apply(x)
        if is_written:
            x.mul_(0.5)
        y[0] = y.sum()
        return x * 1

    with pytest.raises(NotImplementedError, match="shares its memory with another tensor"):
        trace(f, facula.ones(3))
    compiled = facula.compile(f)
    for _ in range(3):
        x, y = facula.arange(3.0), facula.arange(3.0)
        same(compiled(x), f(y))
        same(x, y)


def test_a_diagonal_is_filled_where_the_view_lies():
    def f(x):
        x.chunk(2, 1)[1].fill_diagonal_(1)
        return x * 1

    check(f, facula.arange(9.0).view(3, 3))


def test_a_shape_that_is_a_view_for_some_sizes_alone():
    def f(x):
        n = (x > 0).sum().item() % 3
        return x.expand(n, 3, 3).reshape(1, -1) * 1

    for positive in (1, 2):
        x = facula.full((3, 3), -1.0)
        x.view(-1)[:positive] = 1
        program = trace(f, x)
        same(program(x), f(x))


def test_writes_through_another_dtype_are_refused_by_name():
    def f(x):
        x.unsqueeze(2).view(facula.int32).permute(3, 2, 1, 0)[0] = 2
        return x * 1

    with pytest.raises(NotImplementedError, match=r"writes through view\(dtype\)"):
        trace(f, facula.ones(4, 1, 5, dtype=facula.int64))


def test_as_strided_of_complex_numbers_that_overlap_has_a_gradient():
    base = facula.arange(4.0).to(facula.complex64).requires_grad_()
    x = base.as_strided((2, 2), (1, 1))
    x.as_strided((3,), (1,)).sum().abs().backward()
    assert base.grad.tolist() == [1, 1, 1, 0]


def test_sparse_tensors_are_refused_where_they_are_made():
    for dynamic in (True, False):
        with pytest.raises(NotImplementedError, match="cannot be traced with tensors of a sparse layout"):
            trace(lambda x: x.to_sparse().to_dense(), facula.ones(5, 3), dynamic=dynamic)


def test_a_gradient_of_what_is_left_of_a_size_is_saved(tmp_path):
    def f(x):
        n = (x > 0).sum().item() % 3
        y = x.split([n, x.shape[0] - n])[1]
        return facula.autograd.grad((y * y).sum(), x)[0]

    x = facula.randn(9, requires_grad=True)
    program = trace(f, x)
    program.save(tmp_path / "p")
    same(load(tmp_path / "p")(x), f(x))
