"""A DCGAN on clothes of Fashion-MNIST: two networks, two optimizers, labels of ones and zeros, a grid of pictures."""

import gzip
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data

manualSeed = 999
random.seed(manualSeed)
torch.manual_seed(manualSeed)
rng = np.random.default_rng(manualSeed)
dataroot = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
nz, ngf, ndf, nc, batch_size = 16, 8, 8, 1, 32
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

with gzip.open(os.path.join(dataroot, "t10k-images-idx3-ubyte.gz")) as file:
    images = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 28, 28)[:256]
with gzip.open(os.path.join(dataroot, "t10k-labels-idx1-ubyte.gz")) as file:
    labels = np.frombuffer(file.read(), dtype=np.uint8, offset=8)[:256].copy()
pictures = torch.from_numpy(images.copy()).unsqueeze(1).float().div(255)
pictures = nn.functional.interpolate(pictures, size=16, mode="bilinear", align_corners=False)
pictures = pictures.sub_(0.5).div_(0.5)
print(pictures.shape, pictures.dtype, pictures.mean(), torch.bincount(torch.from_numpy(labels)))
dataset = torch.utils.data.TensorDataset(pictures, torch.from_numpy(labels).long())
dataloader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=False, drop_last=True)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
        m.weight.data = torch.tensor(rng.normal(0, 0.05, m.weight.shape), dtype=torch.float32)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.ones_(m.weight.data)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self, ngpu):
        super(Generator, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ngpu):
        super(Discriminator, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input)


netG, netD = Generator(0).to(device), Discriminator(0).to(device)
if (device.type == "cuda") and (torch.cuda.device_count() > 1):
    netG = nn.DataParallel(netG, list(range(torch.cuda.device_count())))
netG.apply(weights_init)
netD.apply(weights_init)
print(netG)
print(netD)

criterion = nn.BCELoss()
noise_of = lambda n: torch.from_numpy(rng.standard_normal((n, nz, 1, 1))).float().to(device)  # noqa: E731
fixed_noise = noise_of(16)
real_label, fake_label = 1.0, 0.0
optimizerD = optim.Adam(netD.parameters(), lr=0.0004, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0004, betas=(0.5, 0.999))
G_losses, D_losses = [], []
for epoch in range(2):
    for i, data in enumerate(dataloader, 0):
        netD.zero_grad()
        real_cpu = data[0].to(device)
        b_size = real_cpu.size(0)
        label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
        output = netD(real_cpu).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()
        fake = netG(noise_of(b_size))
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().item()
        optimizerG.step()
        if i % 4 == 0:
            print(
                "[%d/%d][%d/%d]\tLoss_D: %.3f\tLoss_G: %.3f\tD(x): %.3f\tD(G(z)): %.3f / %.3f"
                % (epoch, 2, i, len(dataloader), errD.item(), errG.item(), D_x, D_G_z1, D_G_z2)
            )
        G_losses.append(errG.item())
        D_losses.append(errD.item())
with torch.no_grad():
    fake = netG(fixed_noise).detach().cpu()
rows = fake.mul(0.5).add(0.5).clamp(0, 1).squeeze(1).split(4)
grid = torch.cat([torch.cat(row.unbind(), dim=1) for row in rows], dim=0)
picture = grid.mul(255).round().to(torch.uint8).numpy()
print(picture.shape, picture.dtype, netG.main[1].num_batches_tracked, netD.main[3].running_mean.shape)
torch.save(netG.state_dict(), "netG.pth")
print(list(torch.load("netG.pth", weights_only=True))[:4])
