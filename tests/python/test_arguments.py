"""Random argument trees (tests/arguments), and by name what they found."""

import itertools
import operator  # noqa: F401  of calls below
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import facula as F

fn = F.nn.functional
TREES = Path(__file__).parents[1] / "arguments" / "run.py"


@pytest.mark.timeout(300)
def test_random_calls_give_an_answer_or_a_clear_error():
    """FACULA_ARGUMENTS makes as many of them as it says: 30,000 take some five minutes."""
    count = os.environ.get("FACULA_ARGUMENTS", "1500")
    command = [
        sys.executable,
        str(TREES),
        "--seed",
        "0",
        "--count",
        count,
        "--jobs",
        "1",
    ]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [*command, "--as-drawn"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_a_number_is_nothing_to_write_into():
    for call in (F.div_, F.divide_, F.sub_, F.xlogy_, F.bitwise_and_):
        with pytest.raises(TypeError, match="must be Tensor, not float"):
            call(1.5, F.ones(2))


def test_a_sparse_out_of_dense_operands_is_refused():
    for out in (F.ones(4, 2).to_sparse(), F.ones(4, 2).to_sparse_csr()):
        with pytest.raises(NotImplementedError, match="neg: does not take tensors of a sparse layout"):
            F.neg(F.ones(4, 2), out=out)


def test_out_that_is_an_operand_too_does_not_grow():
    a = F.ones(2, 1)
    with pytest.raises(
        RuntimeError, match=r"add: output with shape \[2, 1\] doesn't match the broadcast shape \[2, 3\]"
    ):
        F.add(a, F.ones(3), out=a)
    assert a.tolist() == [[1.0], [1.0]]
    assert F.fft.irfft2(F.ones(2, 4, 3), out=F.ones(2, 4, 3)).shape == (2, 4, 4)
    c = F.ones(2, 4, 3)
    assert F.equal(F.fft.irfft2(c.clone()), F.fft.irfft2(c, out=c))  # computed before it is written
    b = F.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert F.mm(b, b, out=b).tolist() == [[7.0, 10.0], [15.0, 22.0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda: fn.hardshrink(F.ones(2), 1j),
        lambda: fn.softplus(F.ones(2), 1j),
        lambda: fn.leaky_relu(F.ones(2), 1j),
        lambda: F.gcd_(F.ones(2), F.ones(2, requires_grad=True)),
        lambda: F.ones(2).bitwise_xor_(F.ones(2, requires_grad=True)),
        lambda: F.ones(2).atan2_(F.ones(2, dtype=F.complex64, requires_grad=True)),
    ],
)
def test_a_dtype_that_nobody_computes_is_refused_with_a_gradient_too(call):
    with pytest.raises(NotImplementedError, match="not implemented for '(complex64|float32)'"):
        call()


@pytest.mark.parametrize(
    ("self", "index", "src", "expected"),
    [
        ([1.0, 2.0], 1, [5.0, 7.0], [1.0, 7.0]),
        ([1.0, 2.0], [1], 5.0, [1.0, 7.0]),
        (1.0, 0, [5.0], 6.0),
        (1.0, [0], 5.0, 6.0),
    ],
)
def test_tensors_without_dimensions_are_scattered_as_one_element(self, index, src, expected):
    x, s = F.tensor(self, requires_grad=True), F.tensor(src, requires_grad=True)
    y = F.scatter_add(x, 0, F.tensor(index), s)
    assert y.tolist() == expected
    y.sum().backward()
    assert s.grad.shape == s.shape and s.grad.sum().item() == 1


def test_an_index_longer_than_what_is_scattered_is_refused():
    with pytest.raises(RuntimeError, match="to be no larger than src"):
        F.scatter_add(F.zeros(5), 0, F.tensor([0, 1, 2]), F.tensor(1.0))
    x = F.zeros(1, 0, 2)
    assert x.scatter_(-1, F.zeros(1, 0, 2, dtype=F.int64), F.ones(16)).shape == (1, 0, 2)


def test_modes_and_dtypes_that_are_none_are_refused():
    with pytest.raises(ValueError, match="expected padding_mode to be 0, 1 or 2, got 7"):
        F.grid_sampler(F.ones(1, 1, 2, 2), F.zeros(1, 2, 2, 2), 0, 7, True)
    with pytest.raises(
        RuntimeError, match="Bad in-place call: input tensor dtype int64 and output tensor dtype uint8"
    ):
        F.ones(3, dtype=F.int64).cumsum_(0, dtype=F.uint8)
    with pytest.raises(RuntimeError, match="dtype should be real for real inputs"):
        F.norm(F.ones(3), dtype=F.complex64)
    with pytest.raises(RuntimeError, match="randint: only Tensors of floating point"):
        F.randint(9, (2,), requires_grad=True)


def test_an_order_of_no_dimensions_is_refused_of_sparse_tensors_too():
    with pytest.raises(RuntimeError, match="expected every dimension"):
        F.ones(2, 3).to_sparse().permute([])


def test_the_common_dtype_of_a_cosine_similarity_counts():
    y = fn.cosine_similarity(F.ones(2, 3), F.ones(2, 3, dtype=F.int16))
    assert y.dtype == F.float32 and F.allclose(y, F.ones(2))
    with pytest.raises(RuntimeError, match="common dtype to be floating point"):
        fn.cosine_similarity(F.ones(2, 3, dtype=F.int32), F.ones(2, 3, dtype=F.int16))


def test_more_elements_than_there_are_make_no_combination():
    assert F.ones(3).combinations(31).shape == (0, 31)


def test_combinations_of_few_elements_take_no_grid_of_all_choices():
    assert F.arange(3).combinations(64, True).shape == (66 * 65 // 2, 64)
    assert F.arange(1).combinations(65, True).shape == (1, 65)  # more places than a tensor has dimensions
    assert F.arange(0).combinations(3, True).shape == (0, 3)
    for n, r in ((4, 3), (5, 1), (3, 3), (2, 5)):
        assert F.arange(n).combinations(r).tolist() == [list(x) for x in itertools.combinations(range(n), r)]
        again = itertools.combinations_with_replacement(range(n), r)
        assert F.arange(n).combinations(r, True).tolist() == [list(x) for x in again]


NAMED = [
    (
        "F.ones(2, 2).swapdims(1, 2**70)",
        ValueError,
        r"swapdims\(\): argument 'dim1' \(position 2\): a ",
    ),
    ("F.zeros(2**70)", TypeError, r"zeros\(\): argument 'size' \(position 1\): a Python int"),
    ("F.eye(2, device='nowhere')", RuntimeError, r"eye\(\): argument 'device': invalid device"),
    ("F.ones(1).expand(2**40, 4).sinh()", RuntimeError, "^sinh: not enough memory"),
    ("F.ones(3).combinations(2**62, True)", RuntimeError, "^combinations: a tensor of shape"),
    ("F.linalg.cond(F.full((2, 2), float('nan')))", RuntimeError, "^linalg.cond: "),
    ("fn.dropout1d(F.ones(1, 3), -1.0)", ValueError, "^dropout1d: dropout probability"),
    ("fn.pad(F.ones(3), (1, 1), 'no')", NotImplementedError, "^pad: Unrecognised padding mode"),
    (
        "fn.cosine_similarity(x1=3, x2=F.ones(2))",
        TypeError,
        r"^cosine_similarity\(\): argument 'x1' \(position 1\) must",
    ),
    (
        "fn.adaptive_max_pool2d(F.ones(1, 2, 2), 1j)",
        TypeError,
        r"^adaptive_max_pool2d\(\) .* got \(Tensor, c",
    ),
    ("F.ones(2).to(F.float64, copy=F.ones(2))", RuntimeError, "^to: bool: Boolean value of Tensor"),
    ("F.ones(2).cfloat(3)", TypeError, r"^cfloat\(\) takes 0 positional arguments but 1 were given"),
    ("F.ones(2).stride('a')", TypeError, r"^stride\(\): argument 'dim': 'str' object cannot be interpreted"),
    ("fn.avg_pool1d(F.ones(3, 3), {})", TypeError, r"^avg_pool1d\(\): argument 'kernel_size' .*, not dict"),
    ("F.ones(2).map_()", TypeError, r"^map_\(\) expects 1 tensor and a function"),
    ("F.ones(2).set_('a')", TypeError, r"^set_\(\): argument 'source' must be Tensor or Storage, not str"),
    ("F.is_conj([])", TypeError, r"is_conj\(\): argument '\w+' \(position 1\) must be Tensor, not list"),
    ("F.ones(2).module_load(F.ones(3))", RuntimeError, r"^module_load: copy_: shapes \[2\] and \[3\]"),
    ("F.ones(2).resize_as(F.ones(3))", RuntimeError, r"^resize_as: .* resize to \[3\].* shape \[2\]"),
    ("F.ones(2).tile(3.5)", TypeError, r"^tile\(\) .* got \(Tensor, float\)"),
    ("F.ones(1).expand(2**40).char()", RuntimeError, "^char: to: not enough memory"),
    (
        "F.is_same_size(F.ones(1), 2)",
        TypeError,
        r"^is_same_size\(\): argument 'other' \(position 2\) must be T",
    ),
    ("F.ones(2) < 2**70", OverflowError, "^lt: Python int too large"),
    ("F.from_numpy([1])", TypeError, "^from_numpy: expected np.ndarray"),
    (
        "F.frombuffer(b'ab', dtype=object())",
        TypeError,
        "^frombuffer: argument 'dtype' must be a dtype, not obj",
    ),
    (
        "F.from_dlpack([])",
        TypeError,
        "^from_dlpack: expected a capsule or an object with __dlpack__, not list",
    ),
    (
        "F.split_copy(F.ones(2), 2, out=F.ones(2))",
        TypeError,
        "(?s)^split_copy.*must be tuple of Tensors, not T",
    ),
    ("F.roll(F.arange(3), 2**62 + 1)", RuntimeError, r"^roll: shifts must be within"),
    ("F.rot90(F.ones(2, 3), 1 - 2**62)", RuntimeError, "^rot90: k must be within"),
    (
        "F.ones(2).backward(inputs=3)",
        TypeError,
        "argument 'inputs' must be Tensor or a sequence of Tensors, not",
    ),
    ("fn.unfold(F.ones(1), 2)", RuntimeError, r"^unfold: expected 3D .* got shape \[1\]"),
    ("F.smm(F.ones(2), F.ones(3))", RuntimeError, "^smm: mm: `self` must be a matrix"),
    ("F.ones(3)[[2**63]]", ValueError, "^index: a Python int does not fit into 64 bits"),
    ("F.ones(1).to_sparse()[()]", NotImplementedError, "^index: view: does not take tensors of a sparse"),
    (
        "operator.setitem(F.ones(3, requires_grad=True), None, 3)",
        RuntimeError,
        "^index_put_: a view of a leaf Variable that requires grad",
    ),
    (
        "F.nn.TransformerEncoder(uncopyable(), 2)",
        TypeError,
        "^TransformerEncoder: .*a Linear cannot be copied: .*lock",
    ),
    (
        "attend(F.ones(4, 4), F.ones(3, 1, 4), F.ones(3, 1, 4))",
        RuntimeError,
        r"^multi_head_attention_forward: expected in_proj_weight of shape \[12, 4\], got \[4, 4\]",
    ),
    (
        "attend(F.ones(4, 4), *[F.ones(2, 1, 4)] * 2)",
        RuntimeError,
        r"^multi_head_attention_forward: expected in_proj_weight of shape \[12, 4\], got \[4, 4\]",
    ),
    ("F.signal.windows.hann(2**70)", ValueError, "^hann: .* does not fit into 64 bits"),
]


def uncopyable():
    layer = F.nn.Linear(2, 2)
    layer.lock = threading.Lock()
    return layer


def attend(weight, key, value):
    rest = [None, None, False, 0.0, F.ones(4, 4), None]
    return fn.multi_head_attention_forward(F.ones(2, 1, 4), key, value, 4, 2, weight, None, *rest)


@pytest.mark.parametrize(("call", "kind", "text"), NAMED)
def test_errors_name_what_was_called(call, kind, text):
    with pytest.raises(kind, match=text):
        eval(call)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: F.nn.Linear(2, -3), RuntimeError, r"^Linear: empty: .* negative dimension -3: \[-3, 2\]"),
        (lambda: F.nn.Conv2d(1, 2, 3, groups=0), ValueError, "^Conv2d: groups must be a positive integer$"),
        (lambda: F.nn.Conv2d(1, 2), TypeError, r"^Conv2d\(\) .* got \(int, int\): .* missing 1 required"),
        (
            lambda: F.nn.MaxUnpool1d(1.0),
            TypeError,
            r"^MaxUnpool1d\(\) .* got \(float\): 'float' object is not",
        ),
        (lambda: F.nn.LSTM(2, "a"), TypeError, "^LSTM: hidden_size should be of type int, got: str$"),
        (lambda: F.nn.BatchNorm2d(3)(F.ones(2, 3)), ValueError, "^BatchNorm2d: expected 4D input"),
        (lambda: F.nn.Sequential(F.nn.BatchNorm2d(3))(F.ones(2, 3)), ValueError, "^BatchNorm2d: expected 4D"),
        (lambda: F.nn.LazyBatchNorm1d()(F.ones(2)), ValueError, "^LazyBatchNorm1d: expected 2D or 3D"),
        (lambda: F.nn.CircularPad1d(1)(3), TypeError, r"^CircularPad1d\(\): argument 'input' .* not int"),
        (lambda: F.nn.Linear(2, 3)(F.ones(4)), RuntimeError, "^linear: the last dimension"),
        (lambda: F.nn.TransformerEncoder(3, 2**40), TypeError, "^TransformerEncoder: .*int is not a Module"),
    ],
)
def test_errors_of_modules_name_the_class_or_what_it_called(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_errors_of_a_programs_own_modules_stay_as_they_are():
    class Mine(F.nn.Linear):
        def __init__(self, size):
            super().__init__(size, 2)
            if size == 3:
                raise TypeError("mine")

        def forward(self, x):
            raise AttributeError("mine too")

    with pytest.raises(TypeError, match="^mine$"):
        Mine(3)
    with pytest.raises(AttributeError, match="^mine too$"):
        Mine(2)(F.ones(2))


def test_errors_inside_of_a_programs_dlpack_stay_as_they_are():
    class Mine:
        def __dlpack__(self, **options):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="^mine$"):
        F.from_dlpack(Mine())


def test_methods_written_in_python_are_seen_by_modes():
    seen = []

    class Mode(F.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        F.ones(2).new_ones(3)
    assert F.Tensor.new_ones in seen


def test_fused_weights_keep_the_dtype_of_the_layer():
    w, b = F.nn.utils.fuse_linear_bn_weights(
        F.ones(2, 2, dtype=F.bfloat16), F.ones(2), *[F.ones(2)] * 2, 0.1, *[F.ones(2)] * 2
    )
    assert (w.dtype, b.dtype) == (F.bfloat16, F.float32)


def test_trees_made_smaller_are_calls():
    """Each candidate has the text of a call, signs with all their operands."""
    import random

    sys.path.insert(0, str(TREES.parent))
    import trees

    for target in trees.operator_forms(F):
        tree = trees.draw(random.Random(1), target, 0)
        for smaller in trees.simpler(tree):
            compile(str(smaller), "call", "eval")
            assert len(smaller.arguments) == len(tree.arguments)


def test_calls_with_out_follow_one_of_other_sizes():
    """And are compared with the call without it, which finds what was made for the first call alone."""
    import random

    sys.path.insert(0, str(TREES.parent))
    import trees

    (softmax,) = (t for t in trees.reach(F) if t.path == "softmax")
    drawn = [trees.draw(random.Random(k), softmax, k) for k in range(80)]
    pairs = [t for t in drawn if t.before]
    assert len(pairs) > 5
    assert all(trees.alike(t, softmax) and t.before.arguments[-1][0] == "out" for t in pairs)
    shapes = [[x.shape for x in trees.tensors_of(t)] for t in pairs for t in (t, t.before)]
    assert sum(a != b for a, b in zip(shapes[::2], shapes[1::2])) > 3


def test_functions_that_hidden_operators_declare_are_drawn_with_their_samples():
    sys.path.insert(0, str(TREES.parent))
    import trees

    found = {t.path: t for t in trees.reach(F)}
    pool = found["nn.functional.fractional_max_pool2d"]
    assert {"output_ratio", "_random_samples"} <= {p.name for p in pool.parameters}
    assert "_random_samples" in pool.samples[0] and "random_samples" not in pool.samples[0]
    assert {"_max_unpool1d", "im2col", "relu6_"} <= trees.unwritable(F)
    assert not {"relu_", "softmax", "max_unpool1d"} & trees.unwritable(F)


def test_errors_of_what_a_program_hands_over_stay_as_they_are():
    def distance(a, b):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="^mine$"):
        fn.triplet_margin_with_distance_loss(*[F.ones(2, 3)] * 3, distance_function=distance)


def test_shapes_broadcast_as_tensors_of_them_do():
    assert F.broadcast_shapes((2, 1), 3, F.Size([1, 3])) == (2, 3) and F.broadcast_shapes() == ()
    assert isinstance(F.broadcast_shapes([0], (1,)), F.Size) and F.broadcast_shapes([0], (1,)) == (0,)
    for shapes, error, why in (
        (((2,), (3,)), RuntimeError, r"broadcast_shapes: shapes \[2\] and \[3\]"),
        (((-1,), (3,)), ValueError, "not negative, got -1"),
        (((2.5,),), TypeError, "float"),
        ((None,), TypeError, "expected numbers"),
    ):
        with pytest.raises(error, match=why):
            F.broadcast_shapes(*shapes)


def test_true_and_false_are_floating_numbers_but_no_integers():
    x = F.ones(2)
    assert F.nn.functional.dropout(x, True).tolist() == [0.0, 0.0]
    assert F.isclose(x, x + 1, False, True).all()
    assert F.normal(True, False, (2,)).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="must be int, not bool"):
        F.multinomial(x, True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.nn.FractionalMaxPool2d((), [])(F.ones(1)),
        lambda: F.one_hot(F.tensor(2**63 - 1)),
        lambda: F.eye(-(2**63), 5),
        lambda: F.ones(()).diagflat(-(2**63) + 1),
        lambda: F.randn([1 << 62, 100]),
        lambda: F.ones(()).repeat((1 << 62, 5)),
    ],
)
def test_extremes_are_refused(call):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        call()


def test_memory_that_is_not_there_grows():
    assert F.ones((), device="meta").resize_((1 << 60,)).shape == (1 << 60,)


def test_a_factorys_out_requires_gradients_where_it_is_asked_to():
    for make in (
        lambda **more: F.zeros(3, **more),
        lambda **more: F.arange(3, **more),
        lambda **more: F.randn(3, **more),
        lambda **more: F.eye(3, **more),
    ):
        out = F.empty(0)
        assert make(out=out, requires_grad=True) is out and out.requires_grad and out.is_leaf
        whole = F.ones(3, dtype=F.int64)
        with pytest.raises(RuntimeError, match="can require gradients, not int64"):
            make(out=whole, requires_grad=True)
        assert whole.tolist() == [1, 1, 1]


def test_matrices_without_columns_have_solutions_without_rows():
    a = F.ones(3, 2, 0, dtype=F.complex64)
    assert F.linalg.lstsq(a, a).solution.shape == (3, 0, 0)


def test_ranges_of_extreme_steps_have_one_number():
    least, most = -(2**63), 2**63 - 1
    assert F.arange(10, 1, least).tolist() == [10] and F.arange(1, 10, most).tolist() == [1]
    assert F.arange(least, most, most).tolist() == [least, -1, most - 1]
