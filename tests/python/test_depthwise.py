"""The gradient of a depthwise convolution's weight, against sums in float64."""

import numpy as np
import pytest

import facula

F = facula.nn.functional


def expected(x, grad, kernel, stride, padding, dilation):
    (h, w), (oh, ow) = kernel, grad.shape[2:]
    beyond = [(p, p + k * d + s) for p, k, d, s in zip(padding, kernel, dilation, stride)]
    x = np.pad(x.astype(float), ((0, 0), (0, 0), *beyond))
    result = np.zeros((x.shape[1], 1, h, w))
    for i in range(h):
        for j in range(w):
            y0, x0 = i * dilation[0], j * dilation[1]
            rows = slice(y0, y0 + oh * stride[0], stride[0])
            columns = slice(x0, x0 + ow * stride[1], stride[1])
            result[:, 0, i, j] = (x[:, :, rows, columns] * grad).sum((0, 2, 3))
    return result


# Channels that fill vectors and that do not, few and many tasks, images narrower than the kernel, one row,
# more taps than are summed at once.
SHAPES = [
    ((2, 32, 14, 14), (5, 5), (1, 1), (2, 2), (1, 1)),
    ((2, 33, 9, 7), (5, 7), (2, 1), (2, 3), (1, 1)),
    ((1, 16, 3, 3), (7, 7), (1, 1), (3, 3), (1, 1)),
    ((2, 160, 12, 20), (3, 13), (1, 2), (1, 6), (1, 1)),
    ((3, 5, 8, 9), (3, 3), (1, 1), (2, 2), (2, 2)),
    ((2, 16, 10, 11), (4, 6), (3, 2), (0, 5), (2, 3)),
    ((1, 18, 1, 30), (1, 9), (1, 1), (0, 4), (1, 1)),
    ((2, 7, 4, 30), (2, 25), (1, 1), (1, 12), (1, 1)),
]


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("shape, kernel, stride, padding, dilation", SHAPES)
def test_the_gradient_is_near_a_sum_in_float64(shape, kernel, stride, padding, dilation, channels_last):
    rng = np.random.default_rng(len(kernel) + shape[1])
    x = rng.standard_normal(shape).astype("f")
    weight = facula.tensor(rng.standard_normal((shape[1], 1, *kernel)).astype("f"), requires_grad=True)
    bias = facula.zeros(shape[1], requires_grad=True)
    image = facula.tensor(x)
    if channels_last:
        image = image.contiguous(memory_format=facula.channels_last)
    y = F.conv2d(image, weight, bias, stride, padding, dilation, groups=shape[1])
    g = rng.standard_normal(tuple(y.shape)).astype("f")
    y.backward(facula.tensor(g))
    wanted = expected(x, g, kernel, stride, padding, dilation)
    np.testing.assert_allclose(weight.grad.numpy(), wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    np.testing.assert_allclose(bias.grad.numpy(), g.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


def gradient(x, g, kernel):
    weight = facula.zeros((x.shape[1], 1, kernel, kernel), dtype=x.dtype, requires_grad=True)
    y = F.conv2d(x, weight, padding=kernel // 2, groups=x.shape[1])
    return facula.autograd.grad(y, weight, g)[0]


def test_bfloat16_is_rounded_once():
    x, g = facula.randn(2, 40, 9, 9).bfloat16(), facula.randn(2, 40, 9, 9).bfloat16()
    exact = expected(x.float().numpy(), g.float().numpy(), (5, 5), (1, 1), (2, 2), (1, 1))
    rounded = facula.tensor(exact.astype("f")).bfloat16().float().numpy()
    result = gradient(x, g, 5).float().numpy()
    np.testing.assert_allclose(result, rounded, rtol=2**-8, atol=1e-6)
    assert (result == rounded).mean() > 0.99


def test_padding_takes_no_part_where_the_gradient_is_infinite():
    x, g = facula.ones(1, 16, 5, 5), facula.ones(1, 16, 5, 5)
    g[0, 0, 0, 0] = float("inf")
    result = gradient(x, g, 5)
    assert result.isnan().sum().item() == 0
    assert result[0, 0].isinf().tolist() == [[i >= 2 and j >= 2 for j in range(5)] for i in range(5)]
    assert result[1:].isfinite().all().item()


def test_the_bits_do_not_depend_on_the_number_of_threads():
    x, g = facula.randn(3, 24, 20, 20), facula.randn(3, 24, 20, 20)
    before, results = facula.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            facula.set_num_threads(threads)
            results.append(gradient(x, g, 7).numpy().tobytes())
    finally:
        facula.set_num_threads(before)
    assert len(set(results)) == 1


def test_nothing_in_the_batch_gives_zeros():
    result = gradient(facula.randn(0, 8, 6, 6), facula.randn(0, 8, 6, 6), 5)
    assert result.tolist() == facula.zeros(8, 1, 5, 5).tolist()
