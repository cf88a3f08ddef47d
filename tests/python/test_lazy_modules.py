"""Modules that learn a size from their first input become the usual ones and compute what those do."""

import copy
import pickle

import pytest
from facula.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

import facula
from facula import nn

CASES = [
    (nn.LazyLinear, (3,), nn.Linear, (5, 3), [2, 5]),
    (nn.LazyConv1d, (4, 3), nn.Conv1d, (5, 4, 3), [2, 5, 7]),
    (nn.LazyConv2d, (4, 3, 2, 1), nn.Conv2d, (5, 4, 3, 2, 1), [2, 5, 7, 6]),
    (nn.LazyConv3d, (4, 2), nn.Conv3d, (5, 4, 2), [5, 3, 4, 3]),
    (nn.LazyConvTranspose1d, (4, 3), nn.ConvTranspose1d, (5, 4, 3), [2, 5, 7]),
    (nn.LazyConvTranspose2d, (4, 3), nn.ConvTranspose2d, (5, 4, 3), [2, 5, 7, 6]),
    (nn.LazyConvTranspose3d, (4, 2), nn.ConvTranspose3d, (5, 4, 2), [5, 3, 4, 3]),
    (nn.LazyBatchNorm1d, (), nn.BatchNorm1d, (5,), [3, 5, 4]),
    (nn.LazyBatchNorm2d, (0.1,), nn.BatchNorm2d, (5, 0.1), [3, 5, 4, 2]),
    (nn.LazyBatchNorm3d, (), nn.BatchNorm3d, (5,), [3, 5, 4, 2, 1]),
    (nn.LazyInstanceNorm1d, (), nn.InstanceNorm1d, (5, 1e-5, 0.1, True, True), [3, 5, 4]),
    (nn.LazyInstanceNorm2d, (), nn.InstanceNorm2d, (5, 1e-5, 0.1, True, True), [5, 4, 2]),
    (nn.LazyInstanceNorm3d, (), nn.InstanceNorm3d, (5, 1e-5, 0.1, True, True), [3, 5, 4, 2, 2]),
]


@pytest.mark.parametrize(
    "lazy, arguments, usual, more, sizes", CASES, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_lazy_module_becomes_the_usual_one(lazy, arguments, usual, more, sizes):
    x = facula.randn(sizes)
    m, n = lazy(*arguments), usual(*more)
    assert m.has_uninitialized_params() and isinstance(m.weight, UninitializedParameter)
    assert m.state_dict().keys() == n.state_dict().keys() and isinstance(m, usual)
    others = [copy.deepcopy(m), pickle.loads(pickle.dumps(m))]
    weight = m.weight
    facula.manual_seed(0)
    m(x)
    assert type(m) is usual and m.weight is weight and type(weight) is nn.Parameter
    assert repr(m) == repr(n) and [v.shape for v in m.state_dict().values()] == [
        v.shape for v in n.state_dict().values()
    ]
    n.load_state_dict(m.state_dict())
    assert n.eval()(x).equal(m.eval()(x))
    for other in others:
        assert other.has_uninitialized_params()
        other.load_state_dict(m.state_dict())
        assert not other.has_uninitialized_params()
        assert other.eval()(x).equal(m(x)) and type(other) is usual


def test_groups_and_options_without_parameters():
    m = nn.LazyConv2d(4, 3, groups=2, bias=False)
    m(facula.randn(1, 6, 5, 5))
    assert m.weight.shape == (4, 3, 3, 3) and m.bias is None
    m = nn.LazyBatchNorm1d(affine=False)
    assert isinstance(m.running_mean, UninitializedBuffer) and m.weight is None
    m(facula.randn(4, 3))
    assert m.running_mean.shape == (3,) and type(m.running_mean) is facula.Tensor
    m = nn.LazyInstanceNorm1d(affine=False, track_running_stats=False)
    m(facula.randn(2, 3, 4))
    assert m.num_features == 3


def test_an_optimizer_has_the_parameters_before_they_have_shapes():
    net = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1)).double()
    optimizer = facula.optim.SGD(net.parameters(), lr=0.1)
    x = facula.randn(4, 3, dtype=facula.float64)
    net(x).square().sum().backward()
    before = net[0].weight.clone()
    optimizer.step()
    assert net[0].weight.dtype == facula.float64 and not net[0].weight.equal(before)
    assert [type(m) for m in net] == [nn.Linear, nn.ReLU, nn.Linear]


def test_what_needs_a_shape_says_that_there_is_none():
    p = nn.LazyLinear(3).weight
    assert is_lazy(p) and repr(p) == "<UninitializedParameter>"
    assert p.dtype == facula.float32 and p.requires_grad and p.is_leaf
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        p.shape  # noqa: B018
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in add"):
        p + 1
    with pytest.raises(RuntimeError, match="share memory"):
        p.share_memory_()
    with pytest.raises(
        RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"
    ):
        nn.LazyConv2d(4, 3)(facula.ones(2, 3))
    p = UninitializedParameter(dtype=facula.float64)
    p.materialize((2, 3))
    assert type(p) is nn.Parameter and p.shape == (2, 3) and p.dtype == facula.float64
