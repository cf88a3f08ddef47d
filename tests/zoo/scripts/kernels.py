"""Classical methods: k-means, principal components, Gaussian processes, least squares, filters in the frequency domain."""

import math

import numpy as np
import torch

torch.manual_seed(0)
torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)
rng = np.random.default_rng(0)
points = np.concatenate([rng.normal(c, 0.4, (30, 2)) for c in ((0, 0), (3, 0), (0, 3))])
X = torch.from_numpy(points)


def kmeans(x, k, iterations=10):
    centers = x[:: len(x) // k][:k].clone()
    for _ in range(iterations):
        assign = torch.cdist(x, centers).argmin(dim=1)
        counts = torch.bincount(assign, minlength=k).clamp_(min=1)
        centers = torch.zeros_like(centers).index_add_(0, assign, x) / counts[:, None]
    inertia = (x - centers[assign]).square().sum()
    return centers, assign, inertia


centers, assign, inertia = kmeans(X, 3)
print(centers, assign.unique(return_counts=True), inertia)

centered = X - X.mean(0, keepdim=True)
U, S, Vh = torch.linalg.svd(centered, full_matrices=False)
covariance = torch.cov(X.T)
values, vectors = torch.linalg.eigh(covariance)
print(S.square() / (len(X) - 1), values.flip(0), torch.corrcoef(X.T))
print("same axes", torch.allclose((vectors[:, -1] @ Vh[0]).abs(), torch.ones((), dtype=X.dtype)))
u, s, v = torch.pca_lowrank(X, q=2)
print(u.shape, torch.allclose(s, S), torch.linalg.matrix_rank(centered), torch.linalg.cond(covariance))


def rbf(a, b, length=0.8, scale=1.0):
    return scale * torch.exp(-0.5 * torch.cdist(a, b).square() / length**2)


x = torch.linspace(0, 5, 12, dtype=torch.float64).unsqueeze(1)
y = torch.sin(x).squeeze()
log_length = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
log_noise = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([log_length, log_noise], lr=0.1)
for step in range(31):
    optimizer.zero_grad()
    K = rbf(x, x, log_length.exp()) + (log_noise.exp() + 1e-6) * torch.eye(len(x), dtype=x.dtype)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y.unsqueeze(1), L)
    nll = 0.5 * y @ alpha.squeeze() + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)
    nll.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{nll.item():.5f} {log_length.exp().item():.4f} {log_noise.exp().item():.5f}")
with torch.no_grad():
    test = torch.tensor([[0.7], [2.2], [6.0]], dtype=torch.float64)
    Ks = rbf(test, x, log_length.exp())
    mean = Ks @ alpha.squeeze()
    w = torch.linalg.solve_triangular(L, Ks.T, upper=False)
    var = 1 - w.square().sum(0)
print(mean[:2] - torch.sin(test.squeeze())[:2] < 0.05, bool(var[2] > var[0]))

A = torch.stack([torch.ones(12, dtype=torch.float64), x.squeeze(), x.squeeze() ** 2], 1)
solution = torch.linalg.lstsq(A, y.unsqueeze(1))
print(
    solution.solution.T,
    solution.rank,
    torch.linalg.pinv(A).shape,
    torch.linalg.norm(A @ solution.solution - y[:, None]),
)
ridge = torch.linalg.solve(A.T @ A + 0.1 * torch.eye(3), A.T @ y)
Q, R = torch.linalg.qr(A)
print(ridge, R.diagonal().abs(), torch.linalg.det(R).abs(), torch.linalg.slogdet(A.T @ A))
P, Lo, Up = torch.linalg.lu(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
print(P, Lo, Up, torch.linalg.inv(Up), torch.linalg.matrix_exp(torch.zeros(2, 2)))
print(
    torch.linalg.eigvals(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])),
    torch.trapezoid(y, x.squeeze()),
    torch.vander(x[:3, 0]),
)
for bad in (
    lambda: torch.linalg.cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]])),
    lambda: torch.linalg.inv(torch.zeros(2, 2)),
    lambda: torch.linalg.solve(torch.eye(2), torch.ones(3)),
    lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    lambda: torch.ones(2) + torch.ones(3),
):
    try:
        bad()
    except torch.linalg.LinAlgError as error:
        print("LinAlgError", isinstance(error, torch._C._LinAlgError), "positive-definite" in str(error))
    except RuntimeError as error:
        print("RuntimeError", isinstance(error, torch._C._LinAlgError))

rate = 200
t = torch.arange(0, 1, 1 / rate, dtype=torch.float64)
clean = torch.sin(2 * math.pi * 5 * t)
noisy = clean + 0.5 * torch.sin(2 * math.pi * 60 * t) + torch.from_numpy(rng.normal(0, 0.05, len(t)))
spectrum = torch.fft.rfft(noisy)
freqs = torch.fft.rfftfreq(len(t), 1 / rate)
print(freqs[spectrum.abs().topk(2).indices].sort().values, spectrum.dtype)
spectrum[freqs > 20] = 0
filtered = torch.fft.irfft(spectrum, n=len(t))
print(f"{(filtered - clean).square().mean().sqrt():.4f}", torch.fft.fftshift(torch.fft.fftfreq(5)))
window = torch.hann_window(64, dtype=torch.float64)
S = torch.stft(noisy, n_fft=64, hop_length=16, window=window, return_complex=True)
restored = torch.istft(S, n_fft=64, hop_length=16, window=window, length=len(t))
print(S.shape, torch.allclose(restored, noisy), S.abs().pow(2).mean(1).argmax(), torch.view_as_real(S).shape)
analytic = torch.fft.ifft(
    torch.fft.fft(clean) * torch.cat([torch.ones(1), 2 * torch.ones(99), torch.ones(1), torch.zeros(99)])
)
print(analytic.abs().std() < 1e-9, torch.polar(torch.ones(1), torch.tensor([math.pi / 2])))
taps = torch.signal.windows.hamming(9, dtype=torch.float64)
smooth = torch.nn.functional.conv1d(
    noisy.view(1, 1, -1), (taps / taps.sum()).view(1, 1, -1), padding=4
).squeeze()
direct = torch.fft.irfft(torch.fft.rfft(noisy, n=256) * torch.fft.rfft(taps / taps.sum(), n=256), n=256)[
    4:204
]
print(torch.allclose(smooth, direct), smooth[:3], torch.fft.fft2(torch.eye(2)), torch.histc(noisy, 4, -2, 2))
print(
    torch.quantile(noisy, torch.tensor([0.25, 0.5], dtype=torch.float64)),
    torch.histogram(noisy, 3).hist,
    torch.median(noisy),
)
print(
    torch.bucketize(torch.tensor([0.1, 0.6]), torch.tensor([0.0, 0.5, 1.0])),
    torch.cummax(noisy[:5], 0),
    torch.searchsorted(x[:, 0], torch.tensor(2.0)),
)
