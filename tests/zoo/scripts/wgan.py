"""GANs beyond DCGAN: Wasserstein with a gradient penalty, spectral norms, hinge and least squares, conditions, R1, diversity."""

import warnings

import numpy as np
import torch
from torch import autograd, nn
from torch.autograd import Variable, grad
from torch.nn import functional as F
from torch.nn.utils import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
np.random.seed(0)
rng = np.random.RandomState(1)
FloatTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
LongTensor = torch.LongTensor
Tensor = torch.FloatTensor
torch.set_printoptions(precision=4, sci_mode=False)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1 or classname.find("Conv") != -1:
        w = getattr(m, "weight_orig", m.weight)
        w.data.copy_(torch.from_numpy(rng.normal(0.0, 0.2, w.shape)))
        if m.bias is not None:
            nn.init.constant_(m.bias.data, 0)
    elif classname.find("BatchNorm") != -1:
        m.weight.data.copy_(torch.from_numpy(rng.normal(1.0, 0.02, m.weight.shape)))
        m.bias.data.fill_(0)


class Generator(nn.Module):
    def __init__(self, latent=4, n_classes=4):
        super().__init__()
        self.label_emb = nn.Embedding(n_classes, 3)
        self.label_emb.weight.data = torch.from_numpy(rng.randn(n_classes, 3).astype("f"))

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(latent + 3, 16, normalize=False), *block(16, 16), nn.Linear(16, 2))

    def forward(self, z, labels):
        return self.model(torch.cat((self.label_emb(labels), z), -1))


class Discriminator(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.embed = nn.Embedding(n_classes, 3, _weight=torch.from_numpy(rng.randn(n_classes, 3).astype("f")))
        self.model = nn.Sequential(
            nn.Linear(5, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1)
        )

    def forward(self, x, labels):
        return self.model(torch.cat((x.view(x.size(0), -1), self.embed(labels)), dim=-1))


def compute_gradient_penalty(D, real_samples, fake_samples, labels):
    alpha = Tensor(np.random.random((real_samples.size(0), 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates, labels)
    fake = Variable(Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


n = 128
labels_all = rng.randint(0, 4, n)
centres = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
points = centres[labels_all] + 0.1 * rng.randn(n, 2)
loader = DataLoader(
    TensorDataset(Tensor(points), torch.LongTensor(labels_all)), batch_size=32, drop_last=True
)
generator, discriminator = Generator(), Discriminator()
generator.apply(weights_init), discriminator.apply(weights_init)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.005, betas=(0.5, 0.9))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.005, betas=(0.5, 0.9))
batches_done, first, last = 0, None, None
for epoch in range(30):
    for i, (pts, labels) in enumerate(loader):
        real = Variable(pts.type(Tensor))
        labels = Variable(labels.type(LongTensor))
        optimizer_D.zero_grad()
        z = Variable(Tensor(np.random.normal(0, 1, (real.shape[0], 4))))
        fake = generator(z, labels)
        real_validity, fake_validity = discriminator(real, labels), discriminator(fake.detach(), labels)
        gradient_penalty = compute_gradient_penalty(discriminator, real.data, fake.data, labels)
        d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + 10 * gradient_penalty
        d_loss.backward()
        optimizer_D.step()
        if i % 2 == 0:
            optimizer_G.zero_grad()
            g_loss = -torch.mean(discriminator(generator(z, labels), labels))
            g_loss.backward()
            optimizer_G.step()
        if batches_done < 3:
            print(
                "[Epoch %d/%d] [Batch %d/%d] [D loss: %.4f] [G loss: %.4f] [GP: %.4f]"
                % (epoch, 30, i, len(loader), d_loss.item(), g_loss.item(), gradient_penalty)
            )
        batches_done += 1
generator.eval()
with torch.no_grad():
    gen = generator(Tensor(np.random.normal(0, 1, (64, 4))), LongTensor(np.arange(64) % 4)).numpy()
print("near", np.linalg.norm(gen - centres[np.arange(64) % 4], axis=1).mean() < 1.0)


class SNDiscriminator(nn.Module):
    def __init__(self, channels=1, df=4):
        super().__init__()
        self.conv1 = spectral_norm(nn.Conv2d(channels, df, 3, 1, padding=(1, 1)))
        self.conv2 = spectral_norm(nn.Conv2d(df, df * 2, 4, 2, padding=(1, 1)), n_power_iterations=2)
        self.fc = spectral_norm(nn.Linear(4 * 4 * df * 2, 1))
        self.embed = spectral_norm(nn.Embedding(3, 4 * 4 * df * 2))

    def forward(self, x, y=None):
        m = F.leaky_relu(self.conv1(x), 0.1)
        m = F.leaky_relu(self.conv2(m), 0.1).flatten(1)
        out = self.fc(m)
        return out if y is None else out + torch.sum(self.embed(y) * m, dim=1, keepdim=True)


sn = SNDiscriminator()
for m in (sn.conv1, sn.conv2, sn.fc, sn.embed):
    m.weight_orig.data = torch.from_numpy(rng.randn(*m.weight_orig.shape).astype("f"))
    m.weight_u.copy_(torch.from_numpy(rng.randn(*m.weight_u.shape).astype("f")))
    m.weight_u.div_(m.weight_u.norm())
    if getattr(m, "bias", None) is not None:
        m.bias.data.zero_()
print(sn)
print([(k, tuple(v.shape)) for k, v in sn.state_dict().items()])
image = torch.from_numpy(rng.rand(4, 1, 8, 8).astype("f")).requires_grad_()
for _ in range(3):
    out = sn(image, torch.tensor([0, 1, 2, 0]))
print(out.flatten())
sn.train()
hinge_d = F.relu(1.0 - out[:2]).mean() + F.relu(1.0 + out[2:]).mean()
hinge_d.backward(retain_graph=True)
print(hinge_d, sn.conv1.weight_orig.grad.norm(), sn.fc.weight_orig.grad.abs().mean(), image.grad.norm())
for _ in range(30):
    sn(image)
print(
    "norms",
    round(torch.linalg.matrix_norm(sn.fc.weight, 2).item(), 3),
    round(torch.linalg.svdvals(sn.conv2.weight.flatten(1))[0].item(), 3),
)
sn.eval()
r1 = grad(sn(image).sum(), image, create_graph=True)[0].pow(2).reshape(4, -1).sum(1).mean()
sn.zero_grad()
(5 * r1).backward()
print(r1, sn.conv2.weight_orig.grad.norm())
print(
    "removed",
    nn.utils.remove_spectral_norm(sn.fc),
    "weight_u" in dict(sn.fc.named_buffers()),
    list(dict(sn.fc.named_parameters())),
)
adversarial_loss, auxiliary_loss = torch.nn.MSELoss(), torch.nn.BCEWithLogitsLoss()
valid = Variable(FloatTensor(4, 1).fill_(1.0), requires_grad=False)
print(adversarial_loss(out, valid), auxiliary_loss(out, valid * 0.9), adversarial_loss, auxiliary_loss)


class MinibatchStdDev(nn.Module):
    def forward(self, x, group=2):
        b, c, h, w = x.shape
        y = x.reshape(group, -1, c, h, w)
        y = (y - y.mean(0, keepdim=True)).pow(2).mean(0).add_(1e-8).sqrt_().mean([1, 2, 3], True)
        return torch.cat([x, y.repeat(group, 1, h, w)], 1)


class PixelNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-8)


class EqualConv2d(nn.Conv2d):
    def forward(self, x):
        scale = np.sqrt(2 / (self.in_channels * self.kernel_size[0] ** 2))
        return self._conv_forward(x, self.weight * scale, self.bias)


toy = nn.Sequential(
    EqualConv2d(1, 4, 3, padding="same", padding_mode="reflect"),
    PixelNorm(),
    MinibatchStdDev(),
    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
)
toy.apply(
    lambda m: (
        m.weight.data.copy_(torch.from_numpy(rng.randn(*m.weight.shape))) if hasattr(m, "weight") else None
    )
)
toy[0].bias.data.zero_()
out = toy(image)
print(toy, out.shape, out.mean(), out.std())
fade = torch.lerp(F.interpolate(image, scale_factor=2), out[:, :1], 0.3)
print(fade.mean(dim=(1, 2, 3)), torch.optim.RMSprop(toy.parameters(), lr=5e-5), sep="\n")
for p in discriminator.parameters():
    p.data.clamp_(-0.01, 0.01)
print(max(p.abs().max().item() for p in discriminator.parameters()) <= 0.0101)
