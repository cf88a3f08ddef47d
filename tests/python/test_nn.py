"""Modules from Python: against NumPy, and their bookkeeping."""

import copy
import math
from collections import OrderedDict

import numpy as np
import pytest

import facula as torch

nn, F = torch.nn, torch.nn.functional


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def tensor(a, **kw):
    return torch.tensor(np.asarray(a).tolist(), dtype=torch.float64, **kw)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3, bias=False)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.zeros(3))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x):
        return self.head(self.body(x)) * self.scale + self.offset


# ---- layers against NumPy


def conv2d(x, w, b, stride, padding, dilation):
    n, c, h, width = x.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    kh, kw = ((k - 1) * dilation + 1 for k in w.shape[2:])
    oh, ow = ((s - k) // stride + 1 for s, k in zip(x.shape[2:], (kh, kw)))
    y = np.zeros((n, w.shape[0], oh, ow))
    for i in range(oh):
        for j in range(ow):
            patch = x[:, :, i * stride : i * stride + kh : dilation, j * stride : j * stride + kw : dilation]
            y[:, :, i, j] = np.einsum("nchw,ochw->no", patch, w) + b
    return y


@pytest.mark.parametrize("stride, padding, dilation", [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
def test_conv2d(stride, padding, dilation):
    m = nn.Conv2d(3, 4, 3, stride, padding, dilation).double()
    x = array(2, 3, 7, 6)
    expected = conv2d(x, m.weight.detach().numpy(), m.bias.detach().numpy(), stride, padding, dilation)
    np.testing.assert_allclose(m(tensor(x)).detach().numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"stride": (1, 1)}, {"dilation": (1, 1)}])
@pytest.mark.parametrize("padding", [0, "same"])
def test_conv1d_takes_no_pairs(options, padding):
    with pytest.raises(RuntimeError, match="conv1d: expected stride, padding and dilation to be single"):
        F.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3), padding=padding, **options)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 2e-2)])
def test_the_gradient_of_batch_norm(dtype, tolerance, layout):
    """(dy - mean(dy) - xhat mean(dy xhat)) / deviation, times the weight at last."""
    dtype = getattr(torch, dtype)
    x, g = (tensor(array(4, 3, 5, 2, seed=k)).to(dtype).contiguous(memory_format=layout) for k in (1, 2))
    weight, bias = (tensor(array(3, seed=k)).to(dtype) for k in (3, 4))
    weight[1] = float("inf")
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    found = torch.autograd.grad(F.batch_norm(x, None, None, weight, bias, training=True), leaves, g)
    x, g, w = (t.detach().double().numpy() for t in (x, g, weight))
    axes = (0, 2, 3)
    centred, deviation = x - x.mean(axes, keepdims=True), np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    xhat = centred / deviation
    inner = (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True)) / deviation
    expected = inner * w.reshape(1, 3, 1, 1), (g * xhat).sum(axes), g.sum(axes)
    assert found[0].is_contiguous(memory_format=layout) and np.isinf(expected[0][:, 1]).all()
    for a, b in zip(found, expected):
        a, finite = a.double().numpy(), np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=tolerance * np.abs(b[finite]).max())


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_is_differentiated_twice(training):
    def f(x, *weights):
        mean, var = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        return F.batch_norm(x, mean, var, *weights, training=training)

    for shape, n in (((3, 2, 2), 2), ((4, 2), 0)):
        x = tensor(array(*shape, seed=1)).requires_grad_()
        weights = [tensor(array(2, seed=k)).requires_grad_() for k in range(n)]
        assert torch.autograd.gradcheck(f, (x, *weights)) and torch.autograd.gradgradcheck(f, (x, *weights))


@pytest.mark.parametrize(
    "shape, make", [((6, 5), nn.BatchNorm1d), ((6, 5, 4), nn.BatchNorm1d), ((3, 5, 4, 2), nn.BatchNorm2d)]
)
def test_batch_norm_trains_and_evaluates(shape, make):
    m = make(5).double()
    axes = (0, *range(2, len(shape)))
    mean, var = np.zeros(5), np.ones(5)
    wide = (1, 5) + (1,) * (len(shape) - 2)
    for step in range(3):
        x = array(*shape, seed=step) * 3 + 1
        y = m(tensor(x)).detach().numpy()
        mu, sigma = x.mean(axes), x.var(axes)
        np.testing.assert_allclose(
            y, (x - mu.reshape(wide)) / np.sqrt(sigma.reshape(wide) + 1e-5), rtol=1e-10, atol=1e-12
        )
        count = x.size / 5
        mean, var = 0.9 * mean + 0.1 * mu, 0.9 * var + 0.1 * sigma * count / (count - 1)
    np.testing.assert_allclose(m.running_mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(m.running_var.numpy(), var, rtol=1e-12)
    assert m.num_batches_tracked.item() == 3
    y = m.eval()(tensor(x)).detach().numpy()
    np.testing.assert_allclose(
        y, (x - mean.reshape(wide)) / np.sqrt(var.reshape(wide) + 1e-5), rtol=1e-10, atol=1e-12
    )
    assert m.num_batches_tracked.item() == 3


def test_linear_layer_norm_embedding_and_pools():
    x = array(2, 3, 4)
    m = nn.Linear(4, 5).double()
    np.testing.assert_allclose(
        m(tensor(x)).detach().numpy(), x @ m.weight.detach().numpy().T + m.bias.detach().numpy(), rtol=1e-12
    )
    m = nn.LayerNorm((3, 4)).double()
    mu, var = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    np.testing.assert_allclose(m(tensor(x)).detach().numpy(), (x - mu) / np.sqrt(var + 1e-5), rtol=1e-10)
    m = nn.Embedding(6, 2, padding_idx=1)
    assert m.weight[1].tolist() == [0, 0]
    out = m(torch.tensor([[0, 1], [5, 0]]))
    assert out.shape == (2, 2, 2) and out[1, 0].tolist() == m.weight[5].tolist()
    out.sum().backward()
    assert m.weight.grad.tolist() == [[2, 2], [0, 0], [0, 0], [0, 0], [0, 0], [1, 1]]
    x = array(1, 2, 4, 6)
    blocks = x.reshape(1, 2, 2, 2, 3, 2)
    np.testing.assert_allclose(nn.MaxPool2d(2)(tensor(x)).numpy(), blocks.max((3, 5)))
    np.testing.assert_allclose(nn.AvgPool2d(2)(tensor(x)).numpy(), blocks.mean((3, 5)), rtol=1e-12)


def test_attention_is_softmax_of_scores():
    q, k, v = (array(2, 3, 5, 4, seed=s) for s in range(3))
    scores = np.einsum("bhid,bhjd->bhij", q, k) / 2
    for causal in (False, True):
        s = np.where(np.tril(np.ones((5, 5))) > 0, scores, -np.inf) if causal else scores
        w = np.exp(s - s.max(-1, keepdims=True))
        expected = (w / w.sum(-1, keepdims=True)) @ v
        got = F.scaled_dot_product_attention(tensor(q), tensor(k), tensor(v), is_causal=causal)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction):
    x, t = array(4, 3), np.array([0, 2, 1, 2])
    finish = {"none": lambda v: v, "mean": np.mean, "sum": np.sum}[reduction]
    log_p = x - np.log(np.exp(x).sum(1, keepdims=True))
    checks = [
        (nn.CrossEntropyLoss, (tensor(x), torch.tensor(t.tolist())), -log_p[range(4), t]),
        (nn.NLLLoss, (tensor(log_p), torch.tensor(t.tolist())), -log_p[range(4), t]),
        (nn.MSELoss, (tensor(x), tensor(x[::-1])), (x - x[::-1]) ** 2),
        (nn.L1Loss, (tensor(x), tensor(x[::-1])), abs(x - x[::-1])),
        (nn.BCEWithLogitsLoss, (tensor(x), tensor(x > 0)), np.log1p(np.exp(-x)) + (1 - (x > 0)) * x),
    ]
    for make, args, expected in checks:
        np.testing.assert_allclose(
            make(reduction=reduction)(*args).numpy(), finish(expected), rtol=1e-10, err_msg=make.__name__
        )


def test_dropout():
    torch.manual_seed(0)
    m = nn.Dropout(0.25)
    y = m(torch.ones(20000))
    assert sorted(set(y.tolist())) == [0.0, pytest.approx(4 / 3)]
    assert abs((y == 0).float().mean().item() - 0.25) < 0.02
    x = torch.ones(5)
    assert m.eval()(x) is x or m(x).tolist() == [1] * 5
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


@pytest.mark.parametrize(
    "make, reference",
    [
        (nn.ReLU, lambda x: np.maximum(x, 0)),
        (nn.Tanh, np.tanh),
        (nn.Sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (nn.SiLU, lambda x: x / (1 + np.exp(-x))),
        (nn.GELU, lambda x: x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)),
        (nn.LeakyReLU, lambda x: np.where(x > 0, x, 0.01 * x)),
        (nn.ELU, lambda x: np.where(x > 0, x, np.expm1(x))),
    ],
)
def test_activations(make, reference):
    x = array(50) * 3
    np.testing.assert_allclose(make()(tensor(x)).numpy(), reference(x), rtol=1e-12, atol=1e-15)


# ---- parameters and state


def test_names_and_order():
    m = Net()
    assert [n for n, _ in m.named_parameters()] == [
        "scale",
        "body.0.weight",
        "body.0.bias",
        "body.2.weight",
        "body.2.bias",
        "head.weight",
    ]
    assert [n for n, _ in m.named_buffers()] == [
        "offset",
        "scratch",
        "body.2.running_mean",
        "body.2.running_var",
        "body.2.num_batches_tracked",
    ]
    assert [n for n, _ in m.named_modules()] == ["", "body", "body.0", "body.1", "body.2", "head"]
    assert list(m.state_dict()) == [
        "scale",
        "offset",
        "body.0.weight",
        "body.0.bias",
        "body.2.weight",
        "body.2.bias",
        "body.2.running_mean",
        "body.2.running_var",
        "body.2.num_batches_tracked",
        "head.weight",
    ]
    assert m.get_parameter("body.0.bias") is m.body[0].bias and m.get_submodule("body.2") is m.body[2]
    assert dict(m.named_parameters())["scale"] is m.scale


def test_state_dict_round_trip_and_its_errors():
    a, b = Net(), Net()
    a(torch.randn(5, 4))
    assert str(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    x = torch.randn(3, 4)
    assert a.eval()(x).tolist() == b.eval()(x).tolist()
    wrong = OrderedDict(a.state_dict())
    del wrong["head.weight"]
    wrong["extra"] = torch.ones(1)
    wrong["scale"] = torch.ones(4)
    with pytest.raises(RuntimeError) as e:
        b.load_state_dict(wrong)
    for part in (
        "Net",
        'Missing key(s) in state_dict: "head.weight"',
        'Unexpected key(s) in state_dict: "extra"',
        "size mismatch for scale",
        "[4]" if "[4]" in str(e.value) else "(4,)",
    ):
        assert part in str(e.value)
    del wrong["scale"]
    keys = b.load_state_dict(wrong, strict=False)
    assert keys.missing_keys == ["scale", "head.weight"] and keys.unexpected_keys == ["extra"]


def test_shared_parameters_are_listed_once():
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    assert len(list(m.parameters())) == 3 and len(m.state_dict()) == 4


def test_train_and_eval_reach_every_module():
    m = Net().eval()
    assert not any(x.training for x in m.modules())
    assert all(x.training for x in m.train().modules())


def test_conversion_keeps_parameters_and_integers():
    m = Net()
    weight = m.head.weight
    m.double()
    assert (
        m.head.weight is weight and weight.dtype == torch.float64 and weight.is_leaf and weight.requires_grad
    )
    assert m.body[2].num_batches_tracked.dtype == torch.int64
    assert m.to(torch.float32).scale.dtype == torch.float32
    with pytest.raises(TypeError, match="floating point"):
        m.to(torch.int64)


def test_deepcopy_is_independent():
    m = Net()
    c = copy.deepcopy(m)
    with torch.no_grad():
        c.scale.fill_(5)
    assert m.scale.tolist() == [1, 1, 1] and [n for n, _ in c.named_parameters()] == [
        n for n, _ in m.named_parameters()
    ]
    assert isinstance(c.scale, nn.Parameter) and c(torch.randn(4, 4)).shape == (4, 3)


def test_assignments_are_checked():
    m = Net()
    with pytest.raises(TypeError, match="cannot assign 'facula.FloatTensor' as parameter 'scale'"):
        m.scale = torch.ones(3)
    with pytest.raises(TypeError, match="child module 'head'"):
        m.head = 3
    m.head = None
    assert m.head is None
    with pytest.raises(AttributeError, match="before Module.__init__"):
        type(
            "Early", (nn.Module,), {"__init__": lambda self: setattr(self, "p", nn.Parameter(torch.ones(1)))}
        )()
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        m.nothing
    with pytest.raises(KeyError, match="already exists"):
        m.register_buffer("forward", torch.ones(1))


def test_containers():
    m = nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert m.a is m[0] and len(m[:1]) == 1 and m[-1] is m.b
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    layers.append(nn.ReLU())
    del layers[0]
    assert len(layers) == 3 and list(layers.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    d = nn.ModuleDict({"x": nn.Linear(1, 2)})
    assert "x" in d and list(d) == ["x"] and list(d.state_dict()) == ["x.weight", "x.bias"]
    p = nn.ParameterList([torch.ones(1), torch.ones(2)])
    assert len(list(p.parameters())) == 2 and p[-1].shape == (2,)


def test_text():
    assert repr(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())) == (
        "Sequential(\n  (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n  (1): "
        "ReLU()\n)"
    )
    assert repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(nn.Parameter(torch.ones(2))).startswith("Parameter containing:\ntensor([1., 1.]")


# ---- hooks


def test_forward_hooks_see_and_replace():
    m = nn.Linear(2, 2)
    seen = []
    a = m.register_forward_pre_hook(lambda mod, args: (args[0] * 0,))
    b = m.register_forward_hook(lambda mod, args, out: seen.append(args[0].tolist()) or out + 1)
    y = m(torch.ones(1, 2))
    assert seen == [[[0, 0]]] and y.tolist() == (m.bias.detach() + 1).unsqueeze(0).tolist()
    a.remove(), b.remove()
    assert m(torch.zeros(1, 2)).tolist() == m.bias.detach().unsqueeze(0).tolist()


def test_backward_hooks_see_both_sides():
    m = nn.Linear(3, 2)
    seen = []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    x = torch.ones(1, 3, requires_grad=True)
    m(x).sum().backward()
    assert seen[0][1] == [[1, 1]]
    np.testing.assert_allclose(seen[0][0], m.weight.detach().numpy().sum(0)[None], rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), seen[0][0], rtol=1e-6)


def outputs_of(how):
    class M(nn.Module):
        def forward(self, x):
            return how(x)

    return M()


@pytest.mark.parametrize(
    "how", [lambda x: {"y": 2 * x}, lambda x: [2 * x], lambda x: "none"], ids=["dict", "list", "text"]
)
def test_backward_hooks_are_not_called_for_outputs_that_are_no_tensors(how):
    m, seen = outputs_of(how), []
    m.register_full_backward_hook(lambda *a: seen.append(a))
    m.register_full_backward_pre_hook(lambda *a: seen.append(a))
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(
        UserWarning, match="module output should be a Tensor or a tuple of Tensors but received"
    ):
        y = m(x)
    if not isinstance(y, str):
        (y["y"] if isinstance(y, dict) else y[0]).sum().backward()
        assert x.grad.tolist() == [2, 2]
    assert seen == []


def test_backward_hooks_are_not_called_without_gradients_of_outputs():
    m, seen = outputs_of(lambda x: ({"y": 2 * x}, 3 * x)), []
    m.register_full_backward_hook(lambda _, grad_in, grad_out: seen.append((grad_in, grad_out)))
    x = torch.ones(2, requires_grad=True)
    m(x)[0]["y"].sum().backward()  # not through an output that the hook knows
    assert seen == [] and x.grad.tolist() == [2, 2]
    first, second = m(x)
    (first["y"] + second).sum().backward()
    ((grad_in,), grad_out) = seen[0]
    assert grad_in.tolist() == [5, 5] and grad_out[0] is None and grad_out[1].tolist() == [1, 1]


def test_a_buffer_is_a_marked_tensor():
    class Own(torch.Tensor):
        pass

    b = nn.Buffer(torch.ones(2), persistent=False)
    assert type(b) is torch.Tensor and isinstance(b, nn.Buffer) and not b.persistent
    assert (
        not isinstance(b + 1, nn.Buffer) and not isinstance(b[0], nn.Buffer) and type(b * b) is torch.Tensor
    )
    assert not isinstance(b, nn.Parameter) and not isinstance(torch.ones(2), nn.Buffer)
    own = nn.Buffer(torch.ones(2).as_subclass(Own))
    assert type(own) is Own and isinstance(own, nn.Buffer)
    again = copy.deepcopy(b)
    assert isinstance(again, nn.Buffer) and again.persistent is False
    m = nn.Module()
    m.kept, m.lost = nn.Buffer(torch.ones(2)), b
    assert list(dict(m.named_buffers())) == ["kept", "lost"] and list(m.state_dict()) == ["kept"]
    lazy = nn.LazyBatchNorm1d()
    assert isinstance(lazy.running_mean, nn.Buffer)
    lazy(torch.randn(4, 3))
    assert not isinstance(lazy.running_mean + 1, nn.Buffer)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("dim", [0, 1, None])
def test_old_checkpoints_of_weight_norm_load_into_the_parametrization(dim):
    old = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2), dim=dim))
    with torch.no_grad():
        old[0].weight_g.mul_(3)
    state = old.state_dict()
    assert sorted(state) == ["0.bias", "0.weight_g", "0.weight_v"]
    for strict in (True, False):
        new = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2), dim=dim))
        assert new.load_state_dict(state, strict=strict) == ([], [])
        x = torch.randn(4, 3)
        assert torch.equal(new(x), old(x))
    assert sorted(state) == ["0.bias", "0.weight_g", "0.weight_v"]  # the caller's is left as it was
    again = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2), dim=dim))
    again.load_state_dict(new.state_dict())
    assert torch.equal(again(x), old(x))


def test_clipping():
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    p.grad, q.grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert nn.utils.clip_grad_norm_([p, q], 1.0).item() == pytest.approx(5)
    np.testing.assert_allclose(p.grad.tolist() + q.grad.tolist(), [0.6, 0, 0.8], rtol=1e-5)
    nn.utils.clip_grad_value_([p, q], 0.5)
    assert max(p.grad.tolist() + q.grad.tolist()) == 0.5


def test_initial_values():
    torch.manual_seed(0)
    w = torch.empty(200, 300)
    bound = math.sqrt(6 / 500)
    nn.init.xavier_uniform_(w)
    assert w.abs().max().item() <= bound and w.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    nn.init.kaiming_normal_(w, nonlinearity="relu")
    assert w.std().item() == pytest.approx(math.sqrt(2 / 300), rel=0.02)
    nn.init.trunc_normal_(w, std=1.0, a=-0.5, b=0.5)
    assert w.abs().max().item() <= 0.5
    weight = nn.Linear(300, 200).weight
    assert weight.abs().max().item() <= 1 / math.sqrt(300) and weight.requires_grad and weight.is_leaf


def test_wrong_input_names_shapes():
    with pytest.raises(RuntimeError, match=r"(?s)\[2, 5\].*\[3, 4\]|\[3, 4\].*\[2, 5\]"):
        nn.Linear(4, 3)(torch.ones(2, 5))
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(2)(torch.ones(2, 2))


def test_instance_norm_updates_statistics_of_its_own_dtype_and_by_samples_alone():
    x = torch.arange(24.0, dtype=torch.float64).reshape(2, 3, 4)
    mean, var = torch.zeros(3), torch.ones(3)
    y = torch.nn.functional.instance_norm(x, mean, var)
    assert y.dtype == torch.float64 and mean.dtype == torch.float32
    np.testing.assert_allclose(mean.numpy(), 0.1 * x.numpy().mean((0, 2)), rtol=1e-6)
    fixed = torch.nn.functional.instance_norm(x, mean, var, use_input_stats=False)
    assert fixed.dtype == torch.float64
    before = mean.tolist()
    with pytest.raises(IndexError, match="instance_norm: no sample"):
        torch.nn.functional.instance_norm(torch.ones(0, 3, 4), mean, var)
    assert mean.tolist() == before
