"""Compiled programs round 16-bit values where eager mode does: at the results of each call and at gradients.
Their parts compute no gradients of outputs that have none.

Every run draws other chains of elementwise operators. FACULA_SEED repeats one.
"""

import os
import random

import pytest

import facula as T

seed = int(os.environ.get("FACULA_SEED") or random.SystemRandom().randrange(1 << 32))
print(f"FACULA_SEED={seed}")

UNARY = [
    T.exp,
    T.tanh,
    T.sigmoid,
    T.relu,
    T.sin,
    T.expm1,
    T.erf,
    T.atan,
    T.nn.functional.gelu,
    T.nn.functional.silu,
    T.nn.functional.softplus,
    lambda x: x * 1.7,
    lambda x: x + 0.3,
    lambda x: 1 / (x * x + 0.5),
    lambda x: x.abs().sqrt(),
    lambda x: x.clamp(-1, 1),
    lambda x: x**3,
]
BINARY = [
    T.add,
    T.sub,
    T.mul,
    T.atan2,
    T.maximum,
    lambda x, y: x / (y.abs() + 1),
    lambda x, y: T.where(x > y, x, y * 0.1),
    lambda x, y: T.lerp(x, y, 0.3),
    lambda x, y: T.addcmul(x, x, y, value=0.7),
]


def chain(rng, length):
    """A function of two tensors that applies random operators to random earlier results."""
    steps = []
    for k in range(2, 2 + length):
        operands = (rng.randrange(max(0, k - 3), k), rng.randrange(k))
        number = rng.randrange(len(UNARY + BINARY))
        steps.append(((UNARY + BINARY)[number], operands[: 1 + (number >= len(UNARY))]))

    def function(a, b):
        values = [a, b]
        for f, operands in steps:
            values.append(f(*[values[k] for k in operands]))
        return values[-1]

    return function


def bits(t):
    """The elements, which are distinct for 0 and -0 and equal for all NaN."""
    return T.where(t.isnan(), T.full_like(t, float("nan")), t).view(T.int16).tolist()


def leaves(dtype):
    special = [0.0, -0.0, 1e-3, 6e-8, float("inf"), float("nan")]
    values = [T.randn(3, 50).tolist(), T.randn(3, 50).tolist()]
    values[0][0][: len(special)] = special
    return [T.tensor(v, dtype=dtype, requires_grad=True) for v in values]


@pytest.mark.parametrize("dtype", [T.bfloat16, T.float16])
def test_chains_have_the_bits_of_eager_mode(dtype):
    rng = random.Random(seed)
    T.manual_seed(seed)
    for _ in range(8):
        function = chain(rng, rng.randint(2, 10))
        inputs = leaves(dtype)
        with T.no_grad():
            wanted, got = function(*inputs), T.compile(function, fullgraph=True)(*inputs)
        assert bits(wanted) == bits(got)


@pytest.mark.parametrize("dtype", [T.bfloat16, T.float16])
@pytest.mark.parametrize("inside", [True, False])
def test_gradients_of_chains_have_the_bits_of_eager_mode(dtype, inside):
    rng = random.Random(seed + 1)
    T.manual_seed(seed)
    for _ in range(8):
        function = chain(rng, rng.randint(2, 8))
        weight = T.randn(3, 50).to(dtype)

        def step(a, b, function=function, weight=weight):
            a.grad = b.grad = None
            result = function(a, b)
            if inside:
                result.backward(weight)
                with T.no_grad():
                    for p in (a, b):
                        if p.grad is not None:
                            p.sub_(p.grad * 0.1)
            return result

        compiled, runs = T.compile(step, fullgraph=True), []
        inputs = leaves(dtype)
        for f in (step, compiled):
            own = [x.detach().clone().requires_grad_() for x in inputs]
            result = f(*own)
            if not inside and result.requires_grad:
                result.backward(weight)
            runs.append([bits(t.detach()) for t in (result, *own)])
            runs[-1] += [p.grad is not None and bits(p.grad) for p in own]
        assert runs[0] == runs[1]


def test_norms_round_before_they_are_divided_by():
    def gradient(x):
        x.grad = None
        x.norm().backward()
        return x.grad

    x = T.full((12,), 6e-8, dtype=T.float16, requires_grad=True)
    assert T.compile(gradient)(x).tolist() == gradient(x).tolist() == [T.tensor(1 / 3).half().item()] * 12


def test_composites_keep_the_precision_between_their_parts():
    def normalized(x, weight):
        return T.nn.functional.layer_norm(x, (64,), weight), T.softmax(x, -1), T.nn.functional.normalize(x)

    T.manual_seed(seed)
    x, weight = T.randn(16, 64).bfloat16(), T.randn(64).bfloat16()
    for wanted, got in zip(normalized(x, weight), T.compile(normalized)(x, weight), strict=True):
        assert bits(wanted) == bits(got)


def test_files_keep_where_a_program_rounds(tmp_path):
    def function(x):
        return (x * 1.7).exp() * 0.3 + x

    T.manual_seed(seed)
    x = T.randn(100).bfloat16()
    program = T.program.trace(function, x)
    program.save(tmp_path / "program")
    loaded = T.program.load(tmp_path / "program")
    assert bits(program(x)) == bits(loaded(x)) == bits(function(x))
    graph = program.text()
    assert " held = " in graph
    assert loaded.text() == graph


def test_outputs_without_gradients_add_none():
    def function(x, y):
        return x**3, x.abs().sqrt() + y

    for through, other in ((0, None), (1, [1.0, 1.0, 1.0])):
        x, y = T.tensor([0.0, -1.0, 4.0], requires_grad=True), T.zeros(3, requires_grad=True)
        own = [t.detach().clone().requires_grad_() for t in (x, y)]
        T.compile(function, fullgraph=True)(*own)[through].sum().backward()
        function(x, y)[through].sum().backward()
        for eager, compiled in zip((x, y), own, strict=True):
            assert (eager.grad is None) == (compiled.grad is None)
            if eager.grad is not None:
                T.testing.assert_close(compiled.grad, eager.grad, rtol=0, atol=0, equal_nan=True)
        assert other == (None if own[1].grad is None else own[1].grad.tolist())
