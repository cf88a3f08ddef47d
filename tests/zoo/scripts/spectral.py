"""Numbers with two parts: complex layers and their gradients, a Fourier neural operator, filters, windows, phases."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(23)
cplx = lambda *s: torch.from_numpy((rng.randn(*s) + 1j * rng.randn(*s)).astype(np.complex64))  # noqa: E731
torch.set_printoptions(precision=3, sci_mode=False, linewidth=110)


def show(t):
    """Rounded, without signs of zero."""
    parts = torch.view_as_real(t.detach()) if t.is_complex() else t.detach()
    return (
        [[round(v, 3) + 0.0 for v in row] for row in parts.reshape(-1, 2).tolist()]
        if t.is_complex()
        else parts
    )


class ComplexLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(cplx(outputs, inputs) * 0.3)
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.cfloat))

    def forward(self, z):
        return F.linear(z, self.weight, self.bias)


class ModReLU(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.b = nn.Parameter(torch.full((n,), -0.1))

    def forward(self, z):
        return torch.polar(F.relu(z.abs() + self.b), z.angle())


def crelu(z):
    return torch.complex(F.relu(z.real), F.relu(z.imag))


class ComplexNorm(nn.Module):
    """Whitened by the square root of the covariance of both parts."""

    def forward(self, z):
        x = torch.view_as_real(z)
        x = x - x.mean(0)
        cov = torch.einsum("nfi,nfj->fij", x, x) / len(x) + 1e-5 * torch.eye(2)
        e, v = torch.linalg.eigh(cov)
        w = v @ torch.diag_embed(e.rsqrt()) @ v.mT
        return torch.view_as_complex(torch.einsum("fij,nfj->nfi", w, x).contiguous())


net = nn.Sequential(ComplexLinear(4, 8), ModReLU(8), ComplexNorm(), ComplexLinear(8, 3))
z, target = cplx(12, 4), cplx(12, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
for step in range(25):
    out = net(z)
    loss = (out - target).abs().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 3:
        print(f"step {step} loss {loss.item():.4f} gradient {net[0].weight.grad.abs().sum().item():.3f}")
print("falls", loss.item() < 1.2, net[0].weight.grad.dtype, len(net.state_dict()))
state = optimizer.state_dict()["state"][0]
print(state["exp_avg"].dtype, state["exp_avg_sq"].dtype, bool(state["exp_avg_sq"].real.min() >= 0))

a = torch.tensor([1 + 2j, -0.5j, 3.0], requires_grad=True)
for f in (
    torch.exp,
    torch.abs,
    torch.angle,
    torch.log,
    torch.sqrt,
    torch.tanh,
    torch.reciprocal,
    torch.sgn,
    lambda t: t.conj() * t**2,
):
    y = f(a)
    (g,) = torch.autograd.grad(y.abs().sum() if y.is_complex() else y.sum(), a)
    print(show(y), show(g))
w = torch.view_as_real(a.detach().clone())
w[..., 1] *= -1
print(
    torch.equal(torch.view_as_complex(w), a.detach().conj()),
    a.conj().is_conj(),
    a.conj().resolve_conj().is_conj(),
    a.H if a.dim() == 2 else a.mean(),
)
print(
    torch.vdot(a, a).real.item(),
    torch.is_complex(a),
    torch.isclose(a, a + 1e-9).all().item(),
    a.real.dtype,
    torch.finfo(a.dtype).bits,
)
m = cplx(3, 3)
hermitian = m @ m.mH + 3 * torch.eye(3)
values, vectors = torch.linalg.eigh(hermitian)
print(
    torch.allclose(vectors @ torch.diag(values).to(vectors.dtype) @ vectors.mH, hermitian, atol=1e-4),
    values.dtype,
)
L = torch.linalg.cholesky(hermitian)
print(
    torch.allclose(L @ L.mH, hermitian, atol=1e-4),
    torch.allclose(torch.linalg.inv(m) @ m, torch.eye(3, dtype=m.dtype), atol=1e-4),
)
print(
    show(torch.linalg.det(torch.tensor([[1j, 2], [3, 4j]]))),
    show(torch.trace(torch.eye(2) * 1j)),
    show(torch.kron(torch.tensor([1j, 2]), torch.tensor([1, 1j]))),
)
try:
    torch.tensor([1j]) < torch.tensor([2j])
except RuntimeError as error:
    print("refused", "complex" in str(error).lower())


class SpectralConv1d(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weights1 = nn.Parameter(cplx(width, width, modes) / width)

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        out_ft = torch.zeros(*x_ft.shape, dtype=torch.cfloat)
        out_ft[:, :, : self.modes] = torch.einsum("bix,iox->box", x_ft[:, :, : self.modes], self.weights1)
        return torch.fft.irfft(out_ft, n=x.size(-1))


class FNO1d(nn.Module):
    def __init__(self, modes=6, width=8):
        super().__init__()
        self.fc0, self.fc1 = nn.Linear(2, width), nn.Linear(width, 1)
        self.conv = nn.ModuleList([SpectralConv1d(width, modes) for _ in range(2)])
        self.w = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(2)])
        for p in self.parameters():
            if not p.is_complex():
                p.data = torch.from_numpy(rng.randn(*p.shape).astype("f") * 0.3)

    def forward(self, x):
        grid = torch.linspace(0, 1, x.shape[1]).reshape(1, -1, 1).repeat([x.shape[0], 1, 1])
        x = self.fc0(torch.cat((x, grid), dim=-1)).permute(0, 2, 1)
        for conv, w in zip(self.conv, self.w):
            x = F.gelu(conv(x) + w(x))
        return self.fc1(x.permute(0, 2, 1))


s = torch.linspace(0, 1, 33)[:-1]
x = torch.stack([torch.sin(2 * math.pi * (k + 1) * s + k) for k in range(6)])
k = torch.fft.rfftfreq(32, 1 / 32)
y = torch.fft.irfft(torch.fft.rfft(x) * torch.exp(-0.02 * (2 * math.pi * k) ** 2 * 0.1), n=32)
fno = FNO1d()
optimizer = torch.optim.Adam(fno.parameters(), lr=1e-2)
for step in range(30):
    loss = (torch.norm(fno(x.unsqueeze(-1)).squeeze(-1) - y, dim=1) / torch.norm(y, dim=1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 3:
        print(f"operator {step} {loss.item():.4f}")
print("falls", loss.item() < 0.8)

signal = torch.sin(2 * math.pi * 3 * s) + 0.5 * torch.cos(2 * math.pi * 10 * s)
spectrum = torch.fft.fft(signal)
print(
    spectrum.abs().topk(4).indices.sort().values.tolist(), torch.fft.fftshift(torch.fft.fftfreq(6)).tolist()
)
print(
    torch.allclose(torch.fft.ifft(spectrum).real, signal, atol=1e-5),
    torch.fft.hfft(spectrum[:5]).shape,
    torch.fft.ihfft(signal).shape,
)
print(torch.allclose(spectrum.abs().square().sum() / 32, signal.square().sum()))
kernel = torch.tensor([0.25, 0.5, 0.25])
n = 34
by_fft = torch.fft.irfft(torch.fft.rfft(signal, n) * torch.fft.rfft(kernel, n), n)
by_conv = F.conv1d(signal[None, None], kernel.flip(0)[None, None], padding=2)[0, 0]
print("convolution", torch.allclose(by_fft, by_conv, atol=1e-5))
analytic = spectrum.clone()
analytic[1:16] *= 2
analytic[17:] = 0
envelope = torch.fft.ifft(analytic).abs()
print(envelope[:4], torch.fft.ifft(analytic).angle().diff()[:3])
image = torch.from_numpy(rng.rand(8, 8).astype("f"))
low = torch.fft.ifftshift(
    torch.fft.fftshift(torch.fft.fft2(image))
    * (torch.hypot(*torch.meshgrid(torch.arange(-4.0, 4.0), torch.arange(-4.0, 4.0), indexing="ij")) < 2.5)
)
print(
    torch.fft.ifft2(low).real.std(),
    torch.fft.rfftn(image, s=(4, 6), norm="ortho").abs().sum(),
    torch.fft.irfft2(torch.fft.rfft2(image)).sub(image).abs().max() < 1e-5,
)
for window in (
    torch.signal.windows.kaiser(5, beta=3.0),
    torch.signal.windows.gaussian(5, std=1.2),
    torch.blackman_window(5),
    torch.bartlett_window(5, periodic=False),
):
    print(window)
rotary = torch.polar(torch.ones(4, 2), torch.outer(torch.arange(4.0), torch.tensor([1.0, 0.1])))
q = torch.view_as_complex(torch.arange(16.0).view(4, 2, 2))
print(torch.view_as_real(q * rotary).flatten(1)[3])
