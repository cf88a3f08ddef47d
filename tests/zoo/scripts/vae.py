"""A variational autoencoder: reparameterisation, reconstruction and KL, samples as a picture."""

import argparse

import numpy as np
import torch
import torch.utils.data
from PIL import Image
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--log-interval", type=int, default=100)
args = parser.parse_args()

torch.manual_seed(1)
device = torch.device("cpu")

# Bars of 16x16, at a place and with a width.
rng = np.random.RandomState(0)
pictures = np.zeros((512, 1, 16, 16), dtype=np.float32)
for k, picture in enumerate(pictures):
    at, width = rng.randint(1, 11), rng.randint(2, 5)
    picture[0, :, at : at + width] = 1
dataset = torch.utils.data.TensorDataset(torch.from_numpy(pictures), torch.zeros(len(pictures)))
train_loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, shuffle=True)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(256, 96)
        self.fc21 = nn.Linear(96, 4)
        self.fc22 = nn.Linear(96, 4)
        self.fc3 = nn.Linear(4, 96)
        self.fc4 = nn.Linear(96, 256)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 256))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 256), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=3e-3)
losses = []
for epoch in range(1, args.epochs + 1):
    model.train()
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(
                "Train Epoch: {} [{}/{} ({:.0f}%)]".format(
                    epoch,
                    batch_idx * len(data),
                    len(train_loader.dataset),
                    100.0 * batch_idx / len(train_loader),
                )
            )
    losses.append(train_loss / len(train_loader.dataset))
print("falls", losses[-1] < 0.8 * losses[0], "steps", optimizer.state_dict()["state"][0]["step"].item())

model.eval()
with torch.no_grad():
    sample = model.decode(torch.randn(16, 4).to(device)).cpu().view(16, 1, 16, 16)
    a, b = model.encode(dataset.tensors[0][:2].view(-1, 256))[0]
    steps = torch.linspace(0, 1, 5).unsqueeze(1)
    between = model.decode(torch.lerp(a, b, steps))
grid = sample.view(4, 4, 16, 16).permute(0, 2, 1, 3).reshape(64, 64)
Image.fromarray(grid.mul(255).add_(0.5).clamp_(0, 255).to("cpu", torch.uint8).numpy()).save("sample.png")
print("picture", Image.open("sample.png").size, "between", tuple(between.shape), bool((between >= 0).all()))
kl = torch.distributions.kl_divergence(
    torch.distributions.Normal(mu, (0.5 * logvar).exp()), torch.distributions.Normal(0.0, 1.0)
)
print(
    "as distributions",
    torch.allclose(kl.sum(), -0.5 * torch.sum(1 + logvar - mu**2 - logvar.exp()), rtol=1e-4),
)
