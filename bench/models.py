"""Small models of every common kind, one training step each: the first experience of a user. Written
once, as in rows.py; each defines `step()`, which returns the loss.
"""

STEP = """
def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    return loss
"""

CLASSES = """
def loss_of():
    return F.cross_entropy(model(images), labels)
"""

MLP = """
model = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = values(32, 64), torch.arange(32) % 10
"""

CNN = """
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters())
images, labels = values(16, 1, 28, 28), torch.arange(16) % 10
"""

RESNET = """
class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride > 1:
            projection = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
images, labels = values(8, 3, 32, 32), torch.arange(8) % 10
"""

DENSENET = """
class Layer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, features):
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(x)))

class Dense(nn.Module):
    def __init__(self, channels, growth, count):
        super().__init__()
        self.layers = nn.ModuleList([Layer(channels + i * growth, growth) for i in range(count)])

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 1, 1, bias=False), Dense(16, 8, 4), nn.BatchNorm2d(48), nn.ReLU(),
    nn.Conv2d(48, 24, 1, bias=False), nn.AvgPool2d(2), Dense(24, 8, 3), nn.BatchNorm2d(48), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = values(8, 3, 32, 32), torch.arange(8) % 10
"""

UNET = """
def twice(channels, out):
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = twice(3, 8), twice(8, 16), twice(16, 32)
        self.up2, self.merge2 = nn.ConvTranspose2d(32, 16, 2, 2), twice(32, 16)
        self.up1, self.merge1 = nn.ConvTranspose2d(16, 8, 2, 2), twice(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        return self.head(self.merge1(torch.cat([self.up1(b), a], 1)))

model = UNet()
optimizer = torch.optim.AdamW(model.parameters())
images, mask = values(4, 3, 32, 32), (values(4, 1, 32, 32) > 0).float()

def loss_of():
    logits = model(images)
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice
"""

MOBILENET = """
class Inverted(nn.Module):
    def __init__(self, channels, out, stride, expand):
        super().__init__()
        hidden = channels * expand
        self.residual = stride == 1 and channels == out
        self.layers = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
            nn.ReLU6(), nn.Conv2d(hidden, out, 1, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
    Inverted(16, 16, 1, 4), Inverted(16, 24, 2, 4), Inverted(24, 24, 1, 4),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=4e-5)
images, labels = values(8, 3, 32, 32), torch.arange(8) % 10

def loss_of():
    return F.cross_entropy(model(images), labels, label_smoothing=0.1)
"""

AUDIO = """
class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.filter = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.out(torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x)))

model = nn.Sequential(
    nn.Conv1d(1, 16, 9, stride=4, padding=4), nn.BatchNorm1d(16), nn.LeakyReLU(0.1),
    Residual(16, 1), Residual(16, 2), nn.MaxPool1d(4), Residual(16, 4), nn.AdaptiveAvgPool1d(1),
    nn.Flatten(), nn.Linear(16, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
images, labels = values(4, 1, 1024), torch.arange(4) % 10
"""

VIT = """
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(n, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))

class ViT(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])

model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
images, labels = values(4, 3, 32, 32), torch.arange(4) % 10
"""

CAIT = """
class TalkingHeads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = nn.Linear(heads, heads), nn.Linear(heads, heads)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        scores = self.before((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = self.after(scores.softmax(dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.out((self.drop(weights) @ v).transpose(1, 2).reshape(n, length, width))

class ClassAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        n, length, width = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(n, 1, self.heads, -1).permute(0, 2, 1, 3)
        k = self.k(x).reshape(n, length, self.heads, -1).permute(0, 2, 1, 3)
        v = self.v(x).reshape(n, length, self.heads, -1).permute(0, 2, 1, 3)
        weights = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, 1, width))

class Scaled(nn.Module):
    def __init__(self, width, attention):
        super().__init__()
        self.attention = attention
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.gamma1, self.gamma2 = (nn.Parameter(torch.ones(width) * 1e-2) for _ in range(2))

class Block(Scaled):
    def forward(self, x):
        x = x + self.gamma1 * self.attention(self.norm1(x))
        return x + self.gamma2 * self.mlp(self.norm2(x))

class ClassBlock(Scaled):
    def forward(self, x, token):
        u = torch.cat((token, x), dim=1)
        token = token + self.gamma1 * self.attention(self.norm1(u))
        return token + self.gamma2 * self.mlp(self.norm2(token))

class CaiT(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 16, width))
        self.blocks = nn.ModuleList([Block(width, TalkingHeads(width, heads)) for _ in range(2)])
        self.last = ClassBlock(width, ClassAttention(width, heads))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        token = self.last(x, self.token.expand(x.shape[0], -1, -1))
        return self.head(self.norm(torch.cat((token, x), dim=1))[:, 0])

model = CaiT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = values(4, 3, 32, 32), torch.arange(4) % 10
"""

CONVIT = """
class GatedPositional(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qk, self.v = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.position, self.gate = nn.Linear(3, heads), nn.Parameter(torch.ones(heads))
        along = torch.arange(side).view(1, -1) - torch.arange(side).view(-1, 1)
        x, y = along.repeat(side, side), along.repeat_interleave(side, dim=0).repeat_interleave(side, dim=1)
        self.register_buffer("relative", torch.stack([x, y, x**2 + y**2], -1).unsqueeze(0).float())

    def forward(self, x):
        n, length, width = x.shape
        qk = self.qk(x).reshape(n, length, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        content = (qk[0] @ qk[1].transpose(-2, -1) * self.scale).softmax(dim=-1)
        place = self.position(self.relative.expand(n, -1, -1, -1)).permute(0, 3, 1, 2).softmax(dim=-1)
        gate = torch.sigmoid(self.gate.view(1, -1, 1, 1))
        weights = (1.0 - gate) * content + gate * place
        weights = weights / weights.sum(dim=-1).unsqueeze(-1)
        v = self.v(x).reshape(n, length, self.heads, -1).permute(0, 2, 1, 3)
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, width))

class Block(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = GatedPositional(width, heads, side)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))

class ConViT(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(Block(width, 4, 4), Block(width, 4, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))

model = ConViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = values(4, 3, 32, 32), torch.arange(4) % 10
"""

GPT = """
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (
            t.view(n, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(n, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))

class GPT(nn.Module):
    def __init__(self, symbols=65, width=64, context=64):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h)))

model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = (torch.arange(4 * 65) * 7919 % 65).view(4, 65)

def loss_of():
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, 65), tokens[:, 1:].reshape(-1))

def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
"""

AUTOENCODER = """
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU(),
    nn.Flatten(), nn.Linear(16 * 49, 16), nn.Linear(16, 16 * 49), nn.Unflatten(1, (16, 7, 7)), nn.ELU(),
    nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Sigmoid())
optimizer = torch.optim.Adam(model.parameters())
images = values(8, 1, 28, 28) / 4 + 0.5

def loss_of():
    return F.mse_loss(model(images), images)
"""

VAE = """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(784, 128)
        self.mean, self.log_variance = nn.Linear(128, 16), nn.Linear(128, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))

    def forward(self, x):
        h = F.relu(self.encoder(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return torch.sigmoid(self.decoder(z)), mean, log_variance

model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
images = (values(32, 784) > 0).float()

def loss_of():
    output, mean, log_variance = model(images)
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return F.binary_cross_entropy(output, images, reduction="sum") + divergence
"""

CONTRASTIVE = """
model = nn.Sequential(
    nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.PReLU(), nn.Linear(64, 32))
temperature = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.Adam([*model.parameters(), temperature], amsgrad=True)
left, right = values(32, 64), values(32, 64) + 0.1 * values(32, 64).cos()

def loss_of():
    a, b = F.normalize(model(left), dim=-1), F.normalize(model(right), dim=-1)
    logits = a @ b.t() * temperature.exp()
    targets = torch.arange(32)
    both = (F.cross_entropy(logits, targets) + F.cross_entropy(logits.t(), targets)) / 2
    triplet = F.triplet_margin_loss(a, b, b.roll(1, 0), margin=0.3)
    return both + triplet + F.relu(F.cosine_similarity(a, b.roll(1, 0)) - 0.2).mean()
"""

TEXT = """
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 32, padding_idx=0)
        self.convolution = nn.Conv1d(32, 64, 3, padding=1)
        self.fc = nn.Linear(96, 4)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = (tokens != 0).unsqueeze(-1).to(x.dtype)
        mean = (x * mask).sum(1) / mask.sum(1).clamp(min=1)
        peak = F.relu(self.convolution(x.transpose(1, 2))).amax(-1)
        return self.fc(F.dropout(torch.cat([mean, peak], -1), 0.3, self.training))

model = Text()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
images, labels = torch.arange(16 * 24).view(16, 24) * 7919 % 1000, torch.arange(16) % 4

def loss_of():
    return F.nll_loss(F.log_softmax(model(images), dim=1), labels)
"""

MIXER = """
def mlp(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

class Mixer(nn.Module):
    def __init__(self, width, tokens):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = mlp(tokens, 2 * tokens), mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, 8)
        self.blocks = nn.Sequential(Mixer(64, 16), Mixer(64, 16))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, images):
        x = self.blocks(self.patches(images).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), betas=(0.8, 0.99))
images, labels = values(4, 3, 32, 32), torch.arange(4) % 10
"""

SQUEEZE = """
class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        scale = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.up(F.silu(self.down(scale))))

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU(),
    nn.Conv2d(16, 32, 3, 2, 1, groups=4, bias=False), nn.BatchNorm2d(32), nn.SiLU(), Squeeze(32),
    nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32), nn.Hardsigmoid(), nn.AdaptiveAvgPool2d(2),
    nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-4)
images, labels = values(8, 3, 32, 32), torch.arange(8) % 10
"""

GROUPNORM = """
class Block(nn.Module):
    def __init__(self, channels, out, times):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(times, out)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)

class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.block1, self.block2 = Block(16, 32, 32), Block(32, 16, 32)
        self.norm, self.head = nn.InstanceNorm2d(16, affine=True), nn.Conv2d(16, 3, 3, padding=1)
        self.register_buffer("rates", torch.exp(torch.arange(16) * -0.5))

    def forward(self, x, time):
        angles = time[:, None].float() * self.rates[None]
        t = torch.cat([angles.sin(), angles.cos()], -1)
        x = self.block1(self.stem(x), t)
        x = F.avg_pool2d(x, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.head(self.norm(self.block2(x, t)))

model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
clean, time = values(4, 3, 16, 16), torch.arange(4) * 10

def loss_of():
    noise = torch.randn_like(clean)
    keep = torch.cos(time.float() / 50)[:, None, None, None]
    return F.smooth_l1_loss(model(keep * clean + (1 - keep**2).sqrt() * noise, time), noise)
"""

LSTM = """
class Cell(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.x, self.h = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x, h, c):
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(50, 32), Cell(32, 64), nn.Linear(64, 50)

    def forward(self, tokens):
        x = self.embedding(tokens)
        h = c = x.new_zeros(x.shape[0], 64)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], h, c)
            outputs.append(h)
        return self.head(torch.stack(outputs, 1))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
tokens = (torch.arange(8 * 17) * 7919 % 50).view(8, 17)

def loss_of():
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    return loss
"""

GRAPH = """
class Attention(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.message, self.update = nn.Linear(width, out), nn.Linear(width + out, out)
        self.score = nn.Parameter(values(2 * out, 1) * 0.1)

    def forward(self, x, source, target):
        m = self.message(x)
        e = F.leaky_relu(torch.cat([m[source], m[target]], -1) @ self.score, 0.2).squeeze(-1)
        e = torch.exp(e - e.max().detach())
        total = torch.zeros(x.shape[0]).index_add(0, target, e)
        weights = e / (total[target] + 1e-9)
        gathered = torch.zeros(x.shape[0], m.shape[1]).index_add(0, target, m[source] * weights.unsqueeze(-1))
        return self.update(torch.cat([x, gathered], -1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Attention(16, 32), Attention(32, 32), nn.Linear(32, 3)

    def forward(self, x, source, target, batch):
        x = F.elu(self.first(x, source, target))
        x = F.elu(self.second(x, source, target))
        pooled = torch.zeros(8, 32).scatter_add(0, batch[:, None].expand(-1, 32), x)
        return self.head(pooled / (batch[:, None] == torch.arange(8)).sum(0).unsqueeze(-1))

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
nodes, source, target = values(64, 16), torch.arange(256) * 7 % 64, torch.arange(256) * 13 % 64
batch, labels = torch.arange(64) // 8, torch.arange(8) % 3

def loss_of():
    return F.cross_entropy(model(nodes, source, target, batch), labels)
"""

LOSSES = """
model = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Linear(32, 8), nn.SELU(), nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=False)
x, y, classes = values(16, 16), values(16, 8), torch.arange(16) % 8
many, signs = (values(16, 8) > 0).float(), (values(16, 8) > 0).float() * 2 - 1

def loss_of():
    z = model(x)
    p, q = F.log_softmax(z, -1), F.softmax(y, -1)
    losses = [
        F.mse_loss(z, y), F.l1_loss(z, y), F.smooth_l1_loss(z, y), F.huber_loss(z, y, delta=0.5),
        F.cross_entropy(z, classes, weight=torch.linspace(0.5, 1.5, 8)),
        F.kl_div(p, q, reduction="batchmean"),
        F.binary_cross_entropy_with_logits(z, many), F.hinge_embedding_loss(z, signs),
        F.soft_margin_loss(z, signs), F.multilabel_soft_margin_loss(z, many), F.multi_margin_loss(z, classes),
        F.gaussian_nll_loss(z, y, F.softplus(z) + 0.1), F.poisson_nll_loss(z, many),
        F.cosine_embedding_loss(z, y, signs[:, 0]), F.margin_ranking_loss(z[:, 0], z[:, 1], signs[:, 0]),
        z.logsumexp(-1).mean(), z.var(0).mean(), z.norm(), -(p.exp() * p).sum(-1).mean()]
    return torch.stack(losses).sum()
"""

MODELS = {
    "MLP": MLP + CLASSES + STEP,
    "CNN": CNN + CLASSES + STEP,
    "ResNet": RESNET + CLASSES + STEP,
    "DenseNet": DENSENET + CLASSES + STEP,
    "U-Net": UNET + STEP,
    "MobileNet": MOBILENET + STEP,
    "conv1d": AUDIO + CLASSES + STEP,
    "ViT": VIT + CLASSES + STEP,
    "CaiT": CAIT + CLASSES + STEP,
    "ConViT": CONVIT + CLASSES + STEP,
    "GPT": GPT,
    "autoencoder": AUTOENCODER + STEP,
    "VAE": VAE + STEP,
    "contrastive": CONTRASTIVE + STEP,
    "text": TEXT + STEP,
    "Mixer": MIXER + CLASSES + STEP,
    "squeeze-excite": SQUEEZE + CLASSES + STEP,
    "GroupNorm": GROUPNORM + STEP,
    "LSTM": LSTM,
    "graph": GRAPH + STEP,
    "losses": LOSSES + STEP,
}
