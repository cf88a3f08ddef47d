"""Autocast: dtypes of results as PyTorch's lists for the CPU say, gradients in the dtype of the
parameters.
"""

import threading

import pytest

import facula

nn, F = facula.nn, facula.nn.functional
f32, bf16, f16, f64 = facula.float32, facula.bfloat16, facula.float16, facula.float64


def operands():
    a, b = facula.randn(4, 4), facula.randn(4, 4)
    image, kernel = facula.randn(1, 2, 5, 5), facula.randn(3, 2, 3, 3)
    return a, b, image, kernel


LOWER = {
    "matmul": lambda a, b, x, w: a @ b,
    "mm": lambda a, b, x, w: facula.mm(a, b),
    "vector": lambda a, b, x, w: facula.matmul(a[0], b[0]),
    "bmm": lambda a, b, x, w: facula.bmm(a[None], b[None]),
    "addmm": lambda a, b, x, w: facula.addmm(a, a, b),
    "baddbmm": lambda a, b, x, w: facula.baddbmm(a[None], a[None], b[None]),
    "einsum": lambda a, b, x, w: facula.einsum("ij,jk->ik", a, b),
    "linear": lambda a, b, x, w: F.linear(a, b, b[0]),
    "conv2d": lambda a, b, x, w: F.conv2d(x, w),
    "conv1d": lambda a, b, x, w: F.conv1d(x[:, :, 0], w[:, :, 0]),
    "conv_transpose2d": lambda a, b, x, w: F.conv_transpose2d(x, w.transpose(0, 1)),
    "conv_transpose1d": lambda a, b, x, w: F.conv_transpose1d(x[:, :, 0], w[:, :, 0].transpose(0, 1)),
    "attention": lambda a, b, x, w: F.scaled_dot_product_attention(a, b, b),
    "vecdot": lambda a, b, x, w: facula.linalg.vecdot(a, b),
    "inner": lambda a, b, x, w: facula.inner(a, b),
    "affine_grid": lambda a, b, x, w: F.affine_grid(a[None, :2, :3], (1, 1, 2, 2), align_corners=False),
}
AS_THEY_ARE = {
    "add": lambda a, b, x, w: a + b,
    "sum": lambda a, b, x, w: a.sum(),
    "softmax": lambda a, b, x, w: facula.softmax(a, -1),
    "gelu": lambda a, b, x, w: F.gelu(a),
    "layer_norm": lambda a, b, x, w: F.layer_norm(a, (4,)),
    "mv": lambda a, b, x, w: facula.mv(a, b[0]),
    "dot": lambda a, b, x, w: facula.dot(a[0], b[0]),
    "inner_of_vectors": lambda a, b, x, w: facula.inner(a[0], b[0]),
    "pad_constant": lambda a, b, x, w: F.pad(x, (1, 1)),
    "pad_circular": lambda a, b, x, w: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "pad_reflect_3d": lambda a, b, x, w: F.pad(x[None], (1, 1, 1, 1, 1, 1), mode="reflect"),
    "bilinear": lambda a, b, x, w: F.bilinear(a, b, x[0, :, :4, :4]),
    "cosine_similarity": lambda a, b, x, w: F.cosine_similarity(a, b),
    "multilabel_soft_margin_loss": lambda a, b, x, w: F.multilabel_soft_margin_loss(a, b),
    "gaussian_nll_loss": lambda a, b, x, w: F.gaussian_nll_loss(a, b, facula.ones_like(a)),
}
SINGLE = {
    "mse_loss": lambda a, b, x, w: F.mse_loss(a, b),
    "l1_loss": lambda a, b, x, w: F.l1_loss(a, b),
    "cross_entropy": lambda a, b, x, w: F.cross_entropy(a, facula.arange(4)),
    "nll_loss": lambda a, b, x, w: F.nll_loss(a, facula.arange(4)),
    "prod": lambda a, b, x, w: facula.prod(a),
    "smooth_l1_loss": lambda a, b, x, w: F.smooth_l1_loss(a, b),
    "bce_with_logits": lambda a, b, x, w: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
    "avg_pool3d": lambda a, b, x, w: F.avg_pool3d(x, 2),
    "max_pool3d": lambda a, b, x, w: F.max_pool3d(x, 2),
    "adaptive_avg_pool3d": lambda a, b, x, w: F.adaptive_avg_pool3d(x, 1),
    "adaptive_max_pool3d": lambda a, b, x, w: F.adaptive_max_pool3d(x, 1),
    "max_unpool2d": lambda a, b, x, w: F.max_unpool2d(
        *F.max_pool2d(x[..., :4, :4], 2, return_indices=True), 2
    ),
    "fractional_max_pool2d": lambda a, b, x, w: F.fractional_max_pool2d(x, 2, output_size=2),
    "grid_sample": lambda a, b, x, w: F.grid_sample(x, x[..., :2].reshape(1, 5, 2, 2), align_corners=False),
    "cdist": lambda a, b, x, w: facula.cdist(a, b),
    "quantile": lambda a, b, x, w: facula.quantile(a, 0.5),
    "trace": lambda a, b, x, w: facula.trace(a),
    "linear_cross_entropy": lambda a, b, x, w: F.linear_cross_entropy(a, b, facula.arange(4)),
    "pad_reflect": lambda a, b, x, w: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad_replicate": lambda a, b, x, w: F.pad(x[None], (1, 1, 1, 1, 1, 1), mode="replicate"),
    "qr": lambda a, b, x, w: facula.linalg.qr(a)[0],
    "householder_product": lambda a, b, x, w: facula.linalg.householder_product(a, b[0]),
    "geqrf": lambda a, b, x, w: facula.geqrf(a)[0],
    "ormqr": lambda a, b, x, w: facula.ormqr(a, b[0], b),
    "lstsq": lambda a, b, x, w: facula.linalg.lstsq(a, b).solution,
    "triangular_solve": lambda a, b, x, w: facula.triangular_solve(a, b + 4 * facula.eye(4, dtype=b.dtype))[
        0
    ],
    "polar": lambda a, b, x, w: facula.polar(a.abs(), b).real,
}
# To the lower dtype if the state has it, else float32.
BY_STATE = {
    "gru_cell": lambda a, b, x, w: facula.gru_cell(a, b, a.repeat(3, 1), b.repeat(3, 1)),
    "lstm_cell": lambda a, b, x, w: facula.lstm_cell(a, (b, b), a.repeat(4, 1), b.repeat(4, 1))[0],
    "gru": lambda a, b, x, w: facula.gru(
        a[None], b[None], [a.repeat(3, 1), b.repeat(3, 1)], False, 1, 0.0, False, False, False
    )[0],
}


def lstm(a, b):
    weights = [a.repeat(4, 1), b.repeat(4, 1)]
    return facula.lstm(a[None], [b[None], b[None]], weights, False, 1, 0.0, False, False, False)[0]


@pytest.mark.parametrize("dtype", [f32, bf16, f16])
def test_dtypes_of_results(dtype):
    given = [t.to(dtype) for t in operands()]
    with facula.autocast("cpu"):
        assert {n for n, f in LOWER.items() if f(*given).dtype != bf16} == set()
        assert {n for n, f in AS_THEY_ARE.items() if f(*given).dtype != dtype} == set()
        assert {n for n, f in SINGLE.items() if f(*given).dtype != f32} == set()
        by_state = bf16 if dtype == bf16 else f32
        assert {n for n, f in BY_STATE.items() if f(*given).dtype != by_state} == set()
        assert lstm(*given[:2]).dtype == (f32 if dtype == f16 else bf16)
    assert (given[0] @ given[1]).dtype == dtype


def test_float64_is_left_alone():
    a = facula.randn(3, 3, dtype=f64)
    with facula.autocast("cpu"):
        assert (a @ a).dtype == f64


def test_the_dtype_may_be_float16():
    a, b, *_ = operands()
    with facula.autocast("cpu", dtype=f16):
        assert (a @ b).dtype == f16 and facula.get_autocast_dtype("cpu") == f16
    assert facula.get_autocast_dtype("cpu") == bf16


def test_lists_of_tensors_take_the_widest_dtype():
    a = facula.randn(2, 2)
    with facula.autocast("cpu"):
        assert facula.cat([a, a.bfloat16()]).dtype == f32
        assert facula.stack([a.bfloat16(), a.bfloat16()]).dtype == bf16


def test_in_place_and_out_forms_are_left_alone():
    a, b, c = facula.randn(2, 2), facula.randn(2, 2), facula.empty(2, 2)
    with facula.autocast("cpu"):
        facula.mm(a, b, out=c)
    assert facula.equal(c, a @ b)


def test_gradients_have_the_dtype_of_their_parameters():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    x = facula.randn(32, 8)
    with facula.autocast("cpu", dtype=bf16):
        y = model(x)
        loss = F.cross_entropy(y, facula.arange(32) % 4)
    assert y.dtype == bf16 and loss.dtype == f32
    loss.backward()
    lowered = [p.grad.clone() for p in model.parameters()]
    assert all(g.dtype == f32 for g in lowered)
    model.zero_grad()
    F.cross_entropy(model(x), facula.arange(32) % 4).backward()
    for g, p in zip(lowered, model.parameters(), strict=True):
        assert (g - p.grad).abs().max() < 0.03 * max(p.grad.abs().max().item(), 0.05)


def test_regions_nest_and_restore():
    a, b, *_ = operands()
    assert not facula.is_autocast_enabled("cpu")
    with facula.autocast("cpu"):
        assert facula.is_autocast_enabled("cpu") and facula.is_autocast_cpu_enabled()
        with facula.autocast("cpu", enabled=False):
            assert not facula.is_autocast_enabled("cpu") and (a @ b).dtype == f32
        assert (a @ b).dtype == bf16
        try:
            with facula.amp.autocast("cpu", dtype=f16):
                raise KeyError
        except KeyError:
            pass
        assert (a @ b).dtype == bf16
    assert not facula.is_autocast_enabled("cpu") and (a @ b).dtype == f32
    with facula.cpu.amp.autocast():
        assert (a @ b).dtype == bf16


def test_it_decorates_functions():
    a, b, *_ = operands()

    @facula.autocast("cpu")
    def product():
        return a @ b

    assert product().dtype == bf16 and (a @ b).dtype == f32


def test_it_belongs_to_its_thread():
    a, b, *_ = operands()
    seen = []
    with facula.autocast("cpu"):
        t = threading.Thread(target=lambda: seen.append((a @ b).dtype))
        t.start()
        t.join()
    assert seen == [f32]


def test_a_parameter_is_cast_once_and_again_after_it_was_written():
    a, w = facula.randn(2, 2), facula.eye(2).requires_grad_()
    with facula.autocast("cpu"):
        first = a @ w
        assert facula.equal(a @ w, first)
        with facula.no_grad():
            w.mul_(2)
            assert facula.equal(a @ w, first * 2)
        second = a @ w
        assert facula.equal(second, first * 2) and second.requires_grad
    second.float().sum().backward()
    assert w.grad.dtype == f32 and w.grad.abs().sum() > 0


def test_custom_functions_choose_their_dtype():
    seen = []

    class Square(facula.autograd.Function):
        @staticmethod
        @facula.amp.custom_fwd(device_type="cpu", cast_inputs=f32)
        def forward(ctx, x):
            seen.append((x.dtype, facula.is_autocast_enabled("cpu")))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @facula.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append((g.dtype, facula.is_autocast_enabled("cpu")))
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = facula.randn(3, dtype=bf16, requires_grad=True)
    with facula.autocast("cpu"):
        y = Square.apply(x)
    y.sum().backward()
    assert y.dtype == f32 and x.grad.dtype == bf16 and seen == [(f32, False), (f32, False)]


def test_other_devices_and_dtypes_are_refused():
    with pytest.raises(RuntimeError, match="device"):
        facula.autocast("foo")
    with pytest.warns(UserWarning, match="'cuda', but it is not available"):
        assert not facula.autocast("cuda")._enabled
    with pytest.warns(UserWarning, match="only supports"):
        assert not facula.autocast("cpu", dtype=f32)._enabled
