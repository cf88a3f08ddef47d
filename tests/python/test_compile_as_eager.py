"""Compiled functions give, refuse and warn what the functions themselves do: devices, hooks, histories,
writes."""

import itertools
import warnings

import numpy
import pytest

import facula
from facula import autograd


def outcome(f):
    """What a call gives or raises, and the warnings on its way."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = f()
        except Exception as error:
            result = type(error), str(error)
    return result, [(w.category, str(w.message), w.lineno) for w in warned]


def same_as_eager(f, calls=3):
    """Calls f and its compiled form; each call makes what it works on."""
    expected = outcome(f)
    compiled = facula.compile(f)
    for _ in range(calls):
        assert outcome(compiled) == expected
    return expected[0]


def leaf(*shape):
    return facula.ones(*shape, dtype=facula.float64, requires_grad=True)


# ---- devices

FACTORIES = {
    "zeros": lambda d: facula.zeros(2, device=d),
    "rand": lambda d: facula.rand(2, device=d),
    "like": lambda d: facula.zeros_like(facula.ones(2), device=d),
    "new": lambda d: facula.ones(2).new_full((3,), 1, device=d),
    "module": lambda d: facula.nn.Linear(2, 3, device=d).weight,
    "product": lambda d: (lambda m: (m @ m.T).softmax(0))(facula.ones(2, 3, device=d)),
    "move": lambda d: facula.ones(2).to(d) + 1,
}


@pytest.mark.parametrize("make", FACTORIES)
def test_tensors_are_on_the_device_that_was_named(make):
    for d in ("meta", "cpu"):
        assert same_as_eager(lambda d=d: FACTORIES[make](d).device) == facula.device(d)


def test_the_default_device_holds_within_its_region():
    def f():
        with facula.device("meta"):
            a = facula.zeros(2)
        return a.device.type, facula.zeros(2).device.type

    assert same_as_eager(f) == ("meta", "cpu")
    made = facula.compile(lambda: facula.ones(3))
    for device in ("cpu", "meta", "cpu"):
        with facula.device(device):
            assert made().device.type == device


# ---- numbers


def test_a_loop_counter_indexes_in_functions_of_python():
    def picked(shape, axis):
        return shape[axis]

    def f(shape):
        total = []
        for axis in range(3):
            wide = numpy.ones(shape)
            total.append((picked(wide.shape, axis), numpy.fft.rfft(wide, axis=axis).shape))
        return total

    compiled = facula.compile(f)
    for shape in itertools.permutations((2, 3, 9)):
        assert compiled(shape) == f(shape)


def test_a_mapping_makes_a_dict():
    class Mapping:
        def keys(self):
            return ["a", "bc"]

        def __getitem__(self, key):
            return len(key)

    assert same_as_eager(lambda: dict(Mapping(), d=3)) == {"a": 1, "bc": 2, "d": 3}


def test_a_view_at_a_place_that_elements_decide_is_that_view():
    t = facula.arange(6).reshape(3, 2)

    def f(i):
        part = t[i]
        return part.tolist(), part.data_ptr() == t[1].data_ptr()

    compiled = facula.compile(f)
    for k in (1, 1, 2):
        assert compiled(facula.tensor(k)) == ([2 * k, 2 * k + 1], k == 1)


# ---- gradients


def test_hooks_are_called_behind_a_break():
    def f():
        x = leaf(2)
        y, seen = x * 3, []
        y.register_hook(lambda g: seen.append(g.tolist()))
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        y.sum().backward()
        return seen, x.grad.tolist(), y.grad.tolist()

    assert same_as_eager(f) == ([[1, 1]], [6, 6], [2, 2])


class Scaled(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * facula.tensor([1.0, 2.0], dtype=facula.float64)

    @staticmethod
    def backward(ctx, g):
        return g * 5


def test_a_function_that_reads_constants_alone_has_a_history():
    def f():
        x = leaf(2)
        y = Scaled.apply(x)
        return y.requires_grad, y.tolist(), autograd.grad(y.sum(), x)[0].tolist()

    assert same_as_eager(f) == (True, [1, 2], [5, 5])


def test_gradients_pass_through_what_was_computed_before_a_break():
    def f():
        x = leaf(2)
        y = x * 3
        first = y.tolist()
        return first, autograd.grad(y, x, facula.ones_like(y), allow_unused=True)[0].tolist()

    assert same_as_eager(f) == ([3, 3], [3, 3])


@pytest.mark.parametrize("step", [facula.relu, lambda x: x.clamp(-1, 1), lambda x: x * 2])
def test_gradients_that_are_constants_have_no_history(step):
    def f():
        x = leaf(3)
        (g,) = autograd.grad(step(x).sum(), x, create_graph=True)
        return g.requires_grad

    assert same_as_eager(f) is False
    g = facula.compile(lambda x: autograd.grad(step(x).sum(), x, create_graph=True)[0])
    assert not any(g(leaf(3)).requires_grad for _ in range(2))


def test_results_require_gradients_one_by_one():
    def f(items):
        return *facula._foreach_mul(items, 2.0), items[0] * 3, items[1] * 3

    compiled = facula.compile(f)
    items = [facula.ones(2), leaf(2), facula.ones(3)]
    for _ in range(2):
        results = compiled(items)
        assert [r.requires_grad for r in results] == [False, True, False, False, True]
    results[1].sum().backward()
    assert items[1].grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: facula.linalg.lstsq(x, x),
        lambda x: facula.linalg.lstsq(x, x, driver="gelsd"),
        lambda x: [facula.linalg.matrix_power(x, n) for n in range(3)],
    ],
)
def test_results_that_depend_on_no_operand_require_no_gradients(f):
    def answers(x):
        results = list(f(x))
        required = [r.requires_grad for r in results]
        print(end="")  # a break
        sums = [r.sum() for r in results if r.requires_grad]
        return required, autograd.grad(sums, x)[0].tolist()

    facula.manual_seed(0)
    x = facula.rand(3, 3, dtype=facula.float64, requires_grad=True)
    compiled, expected = facula.compile(answers), answers(x)
    assert not all(expected[0])
    for _ in range(3):
        required, grad = compiled(x)
        assert required == expected[0] and facula.allclose(facula.tensor(grad), facula.tensor(expected[1]))


# ---- writes


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[1:].mul_(x[:-1]),
        lambda x: facula.add(x[1:], 1, out=x[:-1]),
        lambda x: facula._foreach_add_([x[:2], x[2:4]], [x[2:4], x[3:5]]),
    ],
)
def test_operands_that_share_a_part_of_the_written_memory_are_refused(write):
    def f():
        x = facula.arange(6.0) + 1
        write(x)
        return x.tolist()

    assert "single memory location" in same_as_eager(f)[1]
    assert same_as_eager(lambda: facula.arange(6.0)[2:].mul_(2).tolist()) == [4, 6, 8, 10]


@pytest.mark.parametrize("parts", [lambda x: x.chunk(2), lambda x: x.split(2), lambda x: x.unbind()])
def test_one_of_several_views_is_not_written_with_gradients(parts):
    assert "returns multiple views" in same_as_eager(lambda: parts(leaf(4) * 1)[0].mul_(2).tolist())[1]
    assert same_as_eager(lambda: facula.ones_like(parts(facula.ones(4))[0].mul_(2)).sum().item()) > 0


@pytest.mark.parametrize("split", [facula.unsafe_chunk, facula.unsafe_split])
def test_parts_that_are_no_views_to_autograd_may_be_written(split):
    def f():
        x = leaf(4)
        part = split(x * 1, 2)[0]
        part.mul_(3)
        part.sum().backward()
        return x.grad.tolist()

    assert same_as_eager(f) == [3, 3, 0, 0]


def test_items_of_a_list_that_are_leaves_are_not_written():
    kind, text = same_as_eager(lambda: facula._foreach_mul_([facula.ones(2), leaf(2)], 2.0))
    assert kind is RuntimeError and "leaf Variable" in text


def test_a_call_that_fails_at_a_later_item_has_written_the_others_once():
    def f():
        items = [facula.ones(2), facula.ones(2, dtype=facula.int64)]
        with pytest.raises(RuntimeError, match="can't be cast"):
            facula._foreach_mul_(items, [2, 2.5])
        return [t.tolist() for t in items]

    assert same_as_eager(f) == [[2, 2], [1, 1]]


@pytest.mark.parametrize(
    "make", [lambda: facula.eye(-(2**63), 5), lambda: facula.randn([1 << 62, 100])], ids=["negative", "large"]
)
def test_results_that_nobody_reads_are_refused_if_no_memory_holds_them(make):
    def f():
        make()
        return 1

    assert same_as_eager(f)[0] is RuntimeError


# ---- warnings


def helper(level):
    warnings.warn("of the caller", DeprecationWarning, stacklevel=level)


WARNING = {
    "of Python": lambda x: warnings.warn("directly", stacklevel=1),
    "of the caller": lambda x: helper(2),
    "of an operator": lambda x: facula.nn.functional.dropout2d(x, 0.5),
    "of a function of this package": lambda x: facula.nn.functional.mse_loss(x, x, size_average=True),
}


@pytest.mark.parametrize("kind", WARNING)
def test_each_run_warns(kind):
    def f():
        x = facula.ones(2, 2)
        WARNING[kind](x)
        return (x * 2).tolist()

    expected = outcome(f)
    compiled = facula.compile(f)
    assert len(expected[1]) == 1
    assert [outcome(compiled) for _ in range(3)] == [expected] * 3
    assert {reason for _, _, reason, _ in compiled.report()["breaks"]} == {
        "`tolist` reads the elements of a tensor"
    }


def test_filters_decide_about_each_run():
    def f(x):
        WARNING["of an operator"](x)
        return x * 2

    compiled, x = facula.compile(f), facula.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(x)
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="2-D input"):
            compiled(x)
        with pytest.raises(UserWarning, match="2-D input"):
            facula.compile(f)(x)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            compiled(x)
    assert len(seen) == 1


def test_warnings_within_a_function_are_recorded_there():
    def f():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            helper(1)
            WARNING["of an operator"](facula.ones(2, 2))
        return [(w.category, str(w.message), w.lineno) for w in seen]

    assert len(same_as_eager(f)) == 2


# ---- writes over what a backward pass needs


def over_result(x):
    y = x.exp()
    z = y * 2
    y.add_(1)
    return z.sum()


def over_operand(x):
    y = x * 2
    z = y.sin()
    y[0] = 5.0
    return z.sum()


def over_itself(x):
    y = x * 3
    return y.mul_(y.detach()).sum()


def over_places(x):
    values, places = x.max(0)
    places.add_(1)
    return values


def through_a_view(x):
    y = x * 2
    z = (y * y).sum()
    y.view(-1)[1:].zero_()
    return z


@pytest.mark.parametrize("f", [over_result, over_operand, over_itself, over_places, through_a_view])
@pytest.mark.parametrize("is_within", [True, False])
def test_what_a_backward_pass_needs_is_not_written(f, is_within):
    def step():
        x = leaf(3)
        f(x).backward()
        return x.grad.tolist()

    if is_within:
        kind, text = same_as_eager(step)
        assert kind is RuntimeError and "modified by an inplace operation" in text
        return
    compiled = facula.compile(f)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            compiled(leaf(3)).backward()


def test_what_no_backward_pass_needs_may_be_written():
    def f(x, state):
        y = x.sin()  # its gradient needs x alone
        y.mul_(2).add_(1)
        state.mul_(0.5).add_(y.detach())
        out = facula.zeros(2, 3, dtype=facula.float64)
        for k in range(2):
            out[k] = y * k
        part = facula.nn.functional.leaky_relu_(y * 2, 0.2).pow_(3)  # in place, the old value is kept
        return out.sum() + y.relu_().sum() + part.sum()

    compiled, state = facula.compile(f), facula.zeros(3, dtype=facula.float64)
    for _ in range(3):
        x, y = leaf(3), leaf(3)
        compiled(x, state).backward()
        f(y, facula.zeros(3, dtype=facula.float64)).backward()
        assert facula.allclose(x.grad, y.grad)
    report = compiled.report()
    assert report["plain_runs"] == 0 and not report["breaks"] and report["captures"] == 1


# ---- steps and modes


@pytest.mark.parametrize("make", [facula.optim.SGD, facula.optim.Adam, facula.optim.LBFGS])
def test_a_closure_of_a_step_reads_and_writes_what_it_reads_and_writes(make):
    def run(step):
        p, state = facula.nn.Parameter(facula.tensor([2.0])), {"scale": 1.0, "calls": 0}
        optimizer = make([p], lr=0.1)

        def closure():
            state["calls"] += 1
            optimizer.zero_grad()
            loss = (p * p * state["scale"]).sum()
            loss.backward()
            return loss

        losses = []
        for scale in (1.0, 1.0, 2.0, 3.0):
            state["scale"] = scale
            losses.append(step(lambda: optimizer.step(closure)).item())
        return losses, state["calls"], p.item()

    compiled = facula.compile(lambda f: f())
    losses, calls, p = run(lambda f: f())
    found, found_calls, found_p = run(compiled)
    assert calls == found_calls and found == pytest.approx(losses) and found_p == pytest.approx(p)


def test_an_optimizer_is_made_and_used_within():
    def f():
        p = facula.nn.Parameter(facula.tensor([2.0]))
        optimizer = facula.optim.SGD([p], lr=0.5)
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        return loss.item(), p.tolist()

    assert same_as_eager(f) == (4, [0])


def test_dispatch_modes_see_the_calls_within():
    from facula.utils.flop_counter import FlopCounterMode

    def f():
        a = facula.ones(2, 3)
        with FlopCounterMode(display=False) as mode:
            a @ a.T
        return mode.get_total_flops()

    assert same_as_eager(f) == 2 * 2 * 3 * 2


def test_pieces_of_unsafe_split_are_written_with_gradients():
    """To autograd they have no base, unlike those of split."""

    def f(w, cut):
        piece = cut(w * w)[0]
        piece.relu_()
        return piece.sum()

    for cut in (lambda x: x.unsafe_split(1, 1), lambda x: x.unsafe_chunk(2, 1)):
        w = facula.tensor([[1.0, 2.0], [-3.0, 4.0]], requires_grad=True)
        facula.compile(f)(w, cut).backward()
        assert w.grad.tolist() == [[2, 0], [-6, 0]]
        traced = facula.program.trace(lambda w, cut=cut: facula.autograd.grad(f(w, cut), w)[0], w)
        assert traced(w).tolist() == [[2, 0], [-6, 0]]


def test_a_piece_of_unsafe_split_is_written_twice():
    def f(w):
        piece = (w * w).unsafe_split(1, 1)[0]
        piece.fill_diagonal_(1)
        piece.masked_fill_(piece != piece, 0)
        return piece.sum()

    w = facula.tensor([[1.0, 2.0], [-3.0, 4.0]], requires_grad=True)
    facula.compile(f)(w).backward()
    assert w.grad.tolist() == [[0, 0], [-6, 0]]


def test_what_no_grad_computes_has_no_history_whatever_its_operands_have():
    for other in (leaf(3), facula.ones(3, dtype=facula.float64)):
        x = leaf(3)

        def f(x=x, other=other):
            a = other * 2
            with facula.no_grad():
                kept, b, c = x[1:], a * 3, other + 1
                d = b * c
            e = (a * d * b).sum() + (c * x).sum()
            history = [t.requires_grad for t in (kept, b, c, d, e)]
            grads = autograd.grad(e, [x, other], allow_unused=True) if other.requires_grad else []
            return history, [g.tolist() for g in grads], e.item()

        assert same_as_eager(f)[0] == [
            True,
            False,
            False,
            False,
            True,
        ]  # views require what their base requires


LAYOUT_CHANGES = {
    "transpose_": lambda t: t.transpose_(0, 1),
    "swapaxes_": lambda t: t.swapaxes_(0, -1),
    "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "squeeze_": lambda t: t.unsqueeze_(1).squeeze_(),
    "as_strided_": lambda t: t.as_strided_((2, 2), (1, 2)),
    "resize_": lambda t: t.resize_(t.shape[0] - 1, t.shape[1]),
    "set_": lambda t: t.set_(t.clone()[1:]),
    "data": lambda t: setattr(t, "data", t.detach().clone().t()),
}


@pytest.mark.parametrize("dynamic", [False, True, None])
@pytest.mark.parametrize("name", LAYOUT_CHANGES)
def test_tensors_from_outside_take_other_sizes_in_place(name, dynamic):
    change = LAYOUT_CHANGES[name]

    def run(compiled):
        outside, seen = facula.arange(20.0).view(5, 4).clone(), []

        def f(x):
            y = x + outside.sum()
            change(outside)
            return y * outside

        g = facula.compile(f, dynamic=dynamic) if compiled else f
        for _ in range(3):
            if name in ("t_", "data") and outside.dim() != 2:
                break
            y = g(facula.ones(1))
            seen.append((y.tolist(), outside.tolist(), outside.shape, outside.stride()))
            if outside.dim() > 2:
                outside.squeeze_()
        return seen

    assert run(True) == run(False)


MODES = {
    "no_grad": facula.no_grad,
    "enable_grad": facula.enable_grad,
    "set_grad_enabled": lambda: facula.set_grad_enabled(False),
    "inference_mode": facula.inference_mode,
    "autocast": lambda: facula.autocast("cpu"),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_capture_that_begins_again_in_a_block_leaves_its_mode(mode):
    """The segment in the block is captured twice: its first capture fails at the history of the result."""

    def f(x, c):
        with MODES[mode]():
            y = x * 2
            facula._dynamo.graph_break()
            y = y + 1
        (c * c).sum().backward()
        return y, x * 1

    compiled = facula.compile(f)
    for _ in range(3):
        x, c = leaf(3), leaf(2)
        y, result = compiled(x, c)
        assert result.requires_grad and y.requires_grad == (mode in ("enable_grad", "autocast"))
        assert c.grad.tolist() == [2, 2]
        assert facula.is_grad_enabled() and not facula.is_inference_mode_enabled()
