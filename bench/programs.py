"""The programs that `make bench-compile` compiles, by name: texts as in rows.py.

Each defines `model`, `inputs` (the arguments of `model`), `loss_of()` and `step()`, one training step,
which returns the loss. Images are 64 pixels wide, and texts have 64 words, so that a step takes less than
a second; depths and widths are those of the published models.
"""

# ruff: noqa: E501
from __future__ import annotations

from models import STEP
from models import VAE as SMALL_VAE
from rows import CNN, GPT, MLP, RESNET18

CLASSIFIER = (
    """
inputs, labels = (normal(4, 3, 64, 64),), random_labels(1000, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

def loss_of():
    return F.cross_entropy(model(*inputs), labels)
"""
    + STEP
)

IMAGES = "\ninputs = (images,)\n"

RESNET50 = """
class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride > 1 or channels != 4 * width:
            projection = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        identity = x
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        if self.downsample is not None:
            identity = self.downsample(x)
        y += identity
        return F.relu(y, inplace=True)

class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for stage, count in enumerate((3, 4, 6, 3)):
            blocks = []
            for k in range(count):
                blocks.append(Bottleneck(channels, 64 << stage, 2 if stage and not k else 1))
                channels = 256 << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean([2, 3]))

model = ResNet50()
"""

MOBILENETV2 = """
class Inverted(nn.Module):
    def __init__(self, channels, out, stride, expand):
        super().__init__()
        hidden = channels * expand
        self.use_residual = stride == 1 and channels == out
        layers = []
        if expand != 1:
            layers += [nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True), nn.Conv2d(hidden, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        if self.use_residual:
            return x + self.layers(x)
        return self.layers(x)

rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
layers, channels = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)], 32
for expand, out, count, stride in rows:
    for k in range(count):
        layers.append(Inverted(channels, out, 1 if k else stride, expand))
        channels = out
layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
model = nn.Sequential(
    *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
"""

EFFICIENTNET = """
def unit(channels, out, kernel, stride=1, groups=1, activation=nn.SiLU):
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *([activation(inplace=True)] if activation else []))

class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(self.avgpool(x)))))

class StochasticDepth(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        keep = 1.0 - self.p
        noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
        return x * noise.bernoulli_(keep).div_(keep)

class MBConv(nn.Module):
    def __init__(self, channels, out, kernel, stride, expand, p):
        super().__init__()
        hidden = channels * expand
        layers = [unit(channels, hidden, 1)] if expand > 1 else []
        layers.append(unit(hidden, hidden, kernel, stride, hidden))
        layers.append(SqueezeExcitation(hidden, max(1, channels // 4)))
        layers.append(unit(hidden, out, 1, activation=None))
        self.block, self.depth = nn.Sequential(*layers), StochasticDepth(p)
        self.residual = stride == 1 and channels == out

    def forward(self, x):
        y = self.block(x)
        return self.depth(y) + x if self.residual else y

layers, channels, n = [unit(3, 32, 3, 2)], 32, 0
rows = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1)]
for expand, kernel, stride, out, count in rows:
    for k in range(count):
        layers.append(MBConv(channels, out, kernel, 1 if k else stride, expand, 0.2 * n / 16))
        channels, n = out, n + 1
model = nn.Sequential(
    *layers, unit(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2, inplace=True),
    nn.Linear(1280, 1000))
"""

CONVNEXT = """
class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width), requires_grad=True)

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x).permute(0, 2, 3, 1)
        x = self.pwconv2(F.gelu(self.pwconv1(self.norm(x))))
        if self.gamma is not None:
            x = self.gamma * x
        return shortcut + x.permute(0, 3, 1, 2)

widths, layers = (96, 192, 384, 768), [nn.Conv2d(3, 96, 4, 4), LayerNorm2d(96, eps=1e-6)]
for k, (width, count) in enumerate(zip(widths, (3, 3, 9, 3))):
    if k:
        layers += [LayerNorm2d(widths[k - 1], eps=1e-6), nn.Conv2d(widths[k - 1], width, 2, 2)]
    layers += [Block(width) for _ in range(count)]
model = nn.Sequential(
    *layers, nn.AdaptiveAvgPool2d(1), LayerNorm2d(768, eps=1e-6), nn.Flatten(), nn.Linear(768, 1000))
"""

VIT = """
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attn_drop = nn.Dropout(0.0)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        weights = self.attn_drop(((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(B, N, C))

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))

class ViT(nn.Module):
    def __init__(self, width=192, depth=12, heads=3, tokens=1):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 16, 16)
        self.tokens = nn.ParameterList([nn.Parameter(torch.zeros(1, 1, width)) for _ in range(tokens)])
        self.pos_embed = nn.Parameter(torch.randn(1, 16 + tokens, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.ModuleList([nn.Linear(width, 1000) for _ in range(tokens)])

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([*(t.expand(x.shape[0], -1, -1) for t in self.tokens), x], dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        outputs = tuple(head(x[:, k]) for k, head in enumerate(self.heads))
        if self.training:
            return outputs
        return sum(outputs) / len(outputs)
"""

VIT_TAIL = (
    """
inputs, labels = (normal(4, 3, 64, 64),), random_labels(1000, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)

def loss_of():
    outputs = model(*inputs)
    return sum(F.cross_entropy(y, labels, label_smoothing=0.1) for y in outputs) / len(outputs)
"""
    + STEP
)

UNET = (
    """
class Twice(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.layers(x)

class Up(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(channels, channels // 2, 2, 2), Twice(channels, out)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size()[2] - x.size()[2], skip.size()[3] - x.size()[3]
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))

class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inc = Twice(3, width)
        self.down = nn.ModuleList(Twice(width << k, width << (k + 1)) for k in range(4))
        self.up = nn.ModuleList(Up(width << (k + 1), width << k) for k in reversed(range(4)))
        self.outc = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for layer in self.down:
            skips.append(layer(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for layer in self.up:
            x = layer(x, skips.pop())
        return self.outc(x)

model = UNet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.9)
inputs, masks = (normal(2, 3, 64, 64),), random_labels(2, 2, 64, 64)

def loss_of():
    logits = model(*inputs)
    p = F.softmax(logits, dim=1)[:, 1]
    dice = 1 - (2 * (p * masks).sum() + 1) / (p.sum() + masks.sum() + 1)
    return F.cross_entropy(logits, masks) + dice
"""
    + STEP
)

VGG11 = """
class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for out in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"):
            if out == "M":
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            else:
                layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True)]
                channels = out
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(2048, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1024), nn.ReLU(True), nn.Dropout(),
            nn.Linear(1024, 1000))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))

model = VGG()
"""

DENSENET121 = """
from collections import OrderedDict

class Layer(nn.Module):
    def __init__(self, channels, growth=32):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.drop_rate = 0.0

    def forward(self, inputs):
        features = [inputs] if isinstance(inputs, torch.Tensor) else inputs
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        x = self.conv2(F.relu(self.norm2(x)))
        if self.drop_rate > 0:
            x = F.dropout(x, p=self.drop_rate, training=self.training)
        return x

class Dense(nn.ModuleDict):
    def __init__(self, channels, count):
        super().__init__()
        for k in range(count):
            self.add_module(f"denselayer{k + 1}", Layer(channels + 32 * k))

    def forward(self, x):
        features = [x]
        for _, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)

parts = OrderedDict(
    conv0=nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm0=nn.BatchNorm2d(64), relu0=nn.ReLU(),
    pool0=nn.MaxPool2d(3, 2, 1))
channels = 64
for k, count in enumerate((6, 12, 24, 16)):
    parts[f"denseblock{k + 1}"] = Dense(channels, count)
    channels += 32 * count
    if k < 3:
        parts[f"transition{k + 1}"] = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2))
        channels //= 2
parts["norm5"] = nn.BatchNorm2d(channels)
model = nn.Sequential(nn.Sequential(parts), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
"""

GPT2 = """
import math
from dataclasses import dataclass

@dataclass
class Config:
    block_size: int = 128
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0

class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(config.n_embd), Attention(config), nn.LayerNorm(config.n_embd)
        self.mlp = nn.ModuleDict(dict(
            c_fc=nn.Linear(config.n_embd, 4 * config.n_embd), act=nn.GELU(approximate="tanh"),
            c_proj=nn.Linear(4 * config.n_embd, config.n_embd), dropout=nn.Dropout(config.dropout)))
        m = self.mlp
        self.mlpf = lambda x: m.dropout(m.c_proj(m.act(m.c_fc(x))))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlpf(self.ln_2(x))
        return x

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd), wpe=nn.Embedding(config.block_size, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]), ln_f=nn.LayerNorm(config.n_embd)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size, f"a sequence of length {t}, block size {self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss

model = GPT(Config())
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
inputs = random_labels(50304, 1, 128), random_labels(50304, 1, 128, seed=1)

def loss_of():
    return model(*inputs)[1]

def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
"""

BERT = (
    """
import math

class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.LayerNorm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.0)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(new_shape).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            scores = scores + attention_mask
        context = torch.matmul(self.dropout(nn.functional.softmax(scores, dim=-1)), v)
        context = context.permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (-1,))
        return self.LayerNorm(self.dropout(self.dense(context)) + hidden_states)

class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.LayerNorm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.0)

    def forward(self, hidden_states, attention_mask=None):
        attention_output = self.attention(hidden_states, attention_mask)
        y = self.output(F.gelu(self.intermediate(attention_output)))
        return self.LayerNorm(self.dropout(y) + attention_output)

class Bert(nn.Module):
    def __init__(self, words=30522, width=768, layers=12, heads=12):
        super().__init__()
        self.word_embeddings = nn.Embedding(words, width, padding_idx=0)
        self.position_embeddings, self.token_type_embeddings = nn.Embedding(512, width), nn.Embedding(2, width)
        self.LayerNorm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.0)
        self.register_buffer("position_ids", torch.arange(512).expand((1, -1)), persistent=False)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, output_hidden_states=False):
        if input_ids is None:
            raise ValueError("You have to specify input_ids")
        input_shape = input_ids.size()
        if token_type_ids is None:
            token_type_ids = torch.zeros(input_shape, dtype=torch.long, device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        x += self.position_embeddings(self.position_ids[:, : input_shape[1]])
        x = self.dropout(self.LayerNorm(x))
        mask = attention_mask[:, None, None, :].to(dtype=x.dtype)
        mask = (1.0 - mask) * torch.finfo(x.dtype).min
        states = () if output_hidden_states else None
        for k, layer in enumerate(self.layers):
            if output_hidden_states:
                states = states + (x,)
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

model = Bert()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
attention = torch.ones(2, 64, dtype=torch.long)
attention[1, 50:] = 0
inputs, labels = (random_labels(30522, 2, 64), attention), random_labels(2, 2)

def loss_of():
    return F.cross_entropy(model(*inputs), labels)
"""
    + STEP
)

T5 = (
    """
import math

class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.variance_epsilon)
        if self.weight.dtype in [torch.float16, torch.bfloat16]:
            x = x.to(self.weight.dtype)
        return self.weight * x

class Attention(nn.Module):
    def __init__(self, width, heads, is_decoder, has_bias):
        super().__init__()
        self.n_heads, self.is_decoder, self.has_bias = heads, is_decoder, has_bias
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        if has_bias:
            self.relative_attention_bias = nn.Embedding(32, heads)

    @staticmethod
    def bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
        buckets = 0
        if bidirectional:
            num_buckets //= 2
            buckets += (relative_position > 0).to(torch.long) * num_buckets
            relative_position = torch.abs(relative_position)
        else:
            relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            torch.log(relative_position.float() / max_exact) / math.log(max_distance / max_exact)
            * (num_buckets - max_exact)).to(torch.long)
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        buckets += torch.where(is_small, relative_position, large)
        return buckets

    def compute_bias(self, rows, columns):
        context = torch.arange(rows, dtype=torch.long)[:, None]
        memory = torch.arange(columns, dtype=torch.long)[None, :]
        values = self.relative_attention_bias(self.bucket(memory - context, bidirectional=not self.is_decoder))
        return values.permute([2, 0, 1]).unsqueeze(0)

    def forward(self, x, memory=None, bias=None):
        batch, length = x.shape[:2]
        source = x if memory is None else memory

        def shape(states):
            return states.view(batch, -1, self.n_heads, states.shape[-1] // self.n_heads).transpose(1, 2)

        scores = torch.matmul(shape(self.q(x)), shape(self.k(source)).transpose(3, 2))
        if bias is None:
            if self.has_bias:
                bias = self.compute_bias(length, source.shape[1])
            else:
                bias = torch.zeros((1, self.n_heads, length, source.shape[1]), dtype=scores.dtype)
            if self.is_decoder and memory is None:
                causal = torch.ones(length, length, dtype=torch.bool).triu(1)
                bias = bias.masked_fill(causal, torch.finfo(scores.dtype).min)
        scores += bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        y = torch.matmul(weights, shape(self.v(source))).transpose(1, 2).contiguous().view(batch, -1, x.shape[-1])
        return self.o(y), bias

class Block(nn.Module):
    def __init__(self, width, hidden, heads, is_decoder, has_bias):
        super().__init__()
        self.norm1, self.attention = RMSNorm(width), Attention(width, heads, is_decoder, has_bias)
        if is_decoder:
            self.norm2, self.cross = RMSNorm(width), Attention(width, heads, is_decoder, False)
        self.norm3 = RMSNorm(width)
        self.wi, self.wo = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x, memory=None, bias=None, cross_bias=None):
        y, bias = self.attention(self.norm1(x), bias=bias)
        x = x + y
        if memory is not None:
            y, cross_bias = self.cross(self.norm2(x), memory=memory, bias=cross_bias)
            x = x + y
        return x + self.wo(F.relu(self.wi(self.norm3(x)))), (bias, cross_bias)

class T5(nn.Module):
    def __init__(self, words=32128, width=512, hidden=2048, heads=8, layers=6):
        super().__init__()
        self.model_dim, self.shared = width, nn.Embedding(words, width)
        self.encoder = nn.ModuleList([Block(width, hidden, heads, False, k == 0) for k in range(layers)])
        self.decoder = nn.ModuleList([Block(width, hidden, heads, True, k == 0) for k in range(layers)])
        self.norms = nn.ModuleDict({"encoder": RMSNorm(width), "decoder": RMSNorm(width)})

    def forward(self, input_ids, decoder_input_ids):
        biases = (None, None)
        memory = self.shared(input_ids)
        for block in self.encoder:
            memory, biases = block(memory, None, *biases)
        memory, biases = self.norms["encoder"](memory), (None, None)
        x = self.shared(decoder_input_ids)
        for block in self.decoder:
            x, biases = block(x, memory, *biases)
        x = self.norms["decoder"](x) * self.model_dim**-0.5
        return F.linear(x, self.shared.weight)

model = T5()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
inputs = random_labels(32128, 2, 48), random_labels(32128, 2, 32, seed=1)
labels = random_labels(32128, 2, 32, seed=2)

def loss_of():
    logits = model(*inputs)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100)
"""
    + STEP
)

LLAMA = (
    """
from typing import NamedTuple, Optional

class Rotation(NamedTuple):
    cos: torch.Tensor
    sin: torch.Tensor

def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)

def apply_rotary(q, k, rotation):
    cos, sin = rotation.cos.unsqueeze(1), rotation.sin.unsqueeze(1)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)

class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight

class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        frequencies = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width))
        self.register_buffer("inv_freq", frequencies, persistent=False)

    @torch.no_grad()
    def forward(self, x, position_ids):
        frequencies = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        angles = (frequencies @ position_ids[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        return Rotation(angles.cos().to(dtype=x.dtype), angles.sin().to(dtype=x.dtype))

class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.head_dim = heads, groups, width // heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, groups * self.head_dim, bias=False) for _ in range(2))

    def forward(self, x, rotation: Rotation, mask: Optional[torch.Tensor] = None):
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (p(x).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = apply_rotary(q, k, rotation)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(y.transpose(1, 2).reshape(*x.shape[:-1], -1).contiguous())

class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

class Layer(nn.Module):
    def __init__(self, width, heads, groups, hidden):
        super().__init__()
        self.self_attn, self.mlp = Attention(width, heads, groups), FeedForward(width, hidden)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)

    def forward(self, x, **kwargs):
        x = x + self.self_attn(self.input_layernorm(x), **kwargs)
        return x + self.mlp(self.post_attention_layernorm(x))

class Llama(nn.Module):
    def __init__(self, words=2048, width=256, layers=6, heads=8, groups=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width, heads, groups, 688) for _ in range(layers)])
        self.norm, self.rotary = RMSNorm(width), Rotary(width // heads)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        positions = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        rotation = self.rotary(x, positions)
        for layer in self.layers[: len(self.layers)]:
            x = layer(x, rotation=rotation, mask=None)
        return self.lm_head(self.norm(x))

model = Llama()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
inputs, labels = (random_labels(2048, 2, 64),), random_labels(2048, 2, 64, seed=1)

def loss_of():
    logits = model(*inputs).float()
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1))
"""
    + STEP
)

LSTM = """
class LanguageModel(nn.Module):
    def __init__(self, words=10000, width=200, layers=2):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(words, width)
        self.rnn, self.decoder = nn.LSTM(width, width, layers, dropout=0.2), nn.Linear(width, words)
        self.layers, self.width, self.words = layers, width, words

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.words)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (weight.new_zeros(self.layers, batch, self.width), weight.new_zeros(self.layers, batch, self.width))

model = LanguageModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens, targets = random_labels(10000, 35, 20), random_labels(10000, 35 * 20, seed=1)
inputs = tokens, model.init_hidden(20)

def loss_of():
    return F.nll_loss(model(tokens, model.init_hidden(tokens.size(1)))[0], targets)

def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    return loss
"""

TRANSLATION = (
    """
import math

class Positions(nn.Module):
    def __init__(self, width, length=512):
        super().__init__()
        position = torch.arange(0, length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(1, length, width)
        pe[0, :, 0::2], pe[0, :, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]

class Translator(nn.Module):
    def __init__(self, words=5000, width=256, heads=8, layers=3):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.positions, self.width = Positions(width), width
        self.transformer = nn.Transformer(
            width, heads, layers, layers, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.generator = nn.Linear(width, words)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        padding = source == 0
        x = self.positions(self.source(source) * math.sqrt(self.width))
        y = self.positions(self.target(target) * math.sqrt(self.width))
        y = self.transformer(
            x, y, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True)
        return self.generator(y)

model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
source, target = random_labels(4999, 4, 24) + 1, random_labels(4999, 4, 25, seed=1) + 1
source[2, 20:] = 0
inputs = source, target[:, :-1]

def loss_of():
    logits = model(source, target[:, :-1])
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), target[:, 1:].reshape(-1), ignore_index=0, label_smoothing=0.1)
"""
    + STEP
)

DLRM = (
    """
def mlp(sizes, last):
    layers = []
    for k, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        layers.append(nn.Sigmoid() if last and k == len(sizes) - 2 else nn.ReLU())
    return nn.Sequential(*layers)

class DLRM(nn.Module):
    def __init__(self, tables=8, rows=1000, width=16):
        super().__init__()
        self.emb_l = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bot_l = mlp([13, 64, 32, width], False)
        n = tables + 1
        self.top_l = mlp([width + n * (n - 1) // 2, 64, 32, 1], True)

    def interact(self, x, embedded):
        batch, width = x.shape
        t = torch.cat([x] + embedded, dim=1).view((batch, -1, width))
        z = torch.bmm(t, torch.transpose(t, 1, 2))
        _, n, _ = z.shape
        li = torch.tensor([i for i in range(n) for j in range(i)])
        lj = torch.tensor([j for i in range(n) for j in range(i)])
        return torch.cat([x] + [z[:, li, lj]], dim=1)

    def forward(self, dense, indices, offsets):
        x = self.bot_l(dense)
        embedded = []
        for k, table in enumerate(self.emb_l):
            embedded.append(table(indices[k], offsets[k]))
        return self.top_l(self.interact(x, embedded))

model = DLRM()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
indices = [random_labels(1000, 256, seed=k) for k in range(8)]
inputs = normal(128, 13), indices, [torch.arange(128) * 2 for _ in range(8)]
labels = random_labels(2, 128, 1).float()

def loss_of():
    return F.binary_cross_entropy(model(*inputs), labels)
"""
    + STEP
)

POINTNET = (
    """
class Transform(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.conv1, self.conv2, self.conv3 = nn.Conv1d(k, 64, 1), nn.Conv1d(64, 128, 1), nn.Conv1d(128, 1024, 1)
        self.fc1, self.fc2, self.fc3 = nn.Linear(1024, 512), nn.Linear(512, 256), nn.Linear(256, k * k)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(1024)
        self.bn4, self.bn5 = nn.BatchNorm1d(512), nn.BatchNorm1d(256)

    def forward(self, x):
        batch = x.size()[0]
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 1024)
        x = F.relu(self.bn4(self.fc1(x)))
        x = self.fc3(F.relu(self.bn5(self.fc2(x))))
        identity = torch.eye(self.k).flatten().view(1, self.k * self.k).repeat(batch, 1)
        return (x + identity).view(-1, self.k, self.k)

class PointNet(nn.Module):
    def __init__(self, classes=16):
        super().__init__()
        self.stn, self.fstn = Transform(3), Transform(64)
        self.conv1, self.conv2, self.conv3 = nn.Conv1d(3, 64, 1), nn.Conv1d(64, 128, 1), nn.Conv1d(128, 1024, 1)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(1024)
        self.fc1, self.fc2, self.fc3 = nn.Linear(1024, 512), nn.Linear(512, 256), nn.Linear(256, classes)
        self.bn4, self.bn5, self.dropout = nn.BatchNorm1d(512), nn.BatchNorm1d(256), nn.Dropout(p=0.3)

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.stn(x)).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        feature_transform = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), feature_transform).transpose(2, 1)
        x = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(x)))))
        x = torch.max(x, 2, keepdim=True)[0].view(-1, 1024)
        x = F.relu(self.bn4(self.fc1(x)))
        x = F.relu(self.bn5(self.dropout(self.fc2(x))))
        return F.log_softmax(self.fc3(x), dim=1), feature_transform

def regularizer(transform):
    identity = torch.eye(transform.size()[1])[None, :, :]
    return torch.mean(torch.norm(torch.bmm(transform, transform.transpose(2, 1)) - identity, dim=(1, 2)))

model = PointNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))
inputs, labels = (normal(8, 3, 128),), random_labels(16, 8)

def loss_of():
    pred, transform = model(*inputs)
    return F.nll_loss(pred, labels) + regularizer(transform) * 0.001
"""
    + STEP
)

DCGAN = """
def generator_net(nz=100, ngf=32, nc=3):
    return nn.Sequential(
        nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 8), nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 8, ngf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 2, nc, 4, 2, 1, bias=False), nn.Tanh())

def discriminator_net(ndf=32, nc=3):
    return nn.Sequential(
        nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Sigmoid())

class DCGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = generator_net(), discriminator_net()

    def forward(self, noise):
        return self.netD(self.netG(noise)).view(-1)

model = DCGAN()
optimizer = torch.optim.Adam(model.netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(model.netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion, real = nn.BCELoss(), normal(8, 3, 32, 32)
inputs = (normal(8, 100, 1, 1),)

def loss_of():
    return criterion(model(*inputs), torch.ones(8))

def step():
    model.netD.zero_grad()
    label = torch.full((8,), 1.0)
    error_real = criterion(model.netD(real).view(-1), label)
    error_real.backward()
    fake = model.netG(inputs[0])
    label.fill_(0.0)
    error_fake = criterion(model.netD(fake.detach()).view(-1), label)
    error_fake.backward()
    error = error_real + error_fake
    optimizer.step()
    model.netG.zero_grad()
    label.fill_(1.0)
    error_g = criterion(model.netD(fake).view(-1), label)
    error_g.backward()
    optimizer_g.step()
    return error + error_g
"""

DIFFUSION = (
    """
import math

def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    rates = torch.exp(-math.log(max_period) * torch.arange(start=0, end=half, dtype=torch.float32) / half)
    args = timesteps[:, None].float() * rates[None]
    embedding = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    if dim % 2:
        embedding = torch.cat([embedding, torch.zeros_like(embedding[:, :1])], dim=-1)
    return embedding

class ResBlock(nn.Module):
    def __init__(self, channels, out, emb):
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(emb, 2 * out))
        self.out_norm, self.out_rest = nn.GroupNorm(8, out), nn.Sequential(nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, emb):
        h, emb_out = self.in_layers(x), self.emb_layers(emb)
        while len(emb_out.shape) < len(h.shape):
            emb_out = emb_out[..., None]
        scale, shift = torch.chunk(emb_out, 2, dim=1)
        h = self.out_norm(h) * (1 + scale) + shift
        return self.skip(x) + self.out_rest(h)

class AttentionBlock(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.qkv, self.proj = nn.Conv1d(channels, 3 * channels, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x, emb=None):
        b, c, *spatial = x.shape
        x = x.reshape(b, c, -1)
        q, k, v = self.qkv(self.norm(x)).reshape(b * self.heads, 3 * c // self.heads, -1).chunk(3, dim=1)
        scale = 1 / math.sqrt(math.sqrt(c // self.heads))
        weight = torch.einsum("bct,bcs->bts", q * scale, k * scale)
        a = torch.einsum("bts,bcs->bct", torch.softmax(weight, dim=-1), v).reshape(b, c, -1)
        return (x + self.proj(a)).reshape(b, c, *spatial)

class Resample(nn.Module):
    def __init__(self, channels, up):
        super().__init__()
        self.up, self.conv = up, nn.Conv2d(channels, channels, 3, stride=1 if up else 2, padding=1)

    def forward(self, x, emb=None):
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest") if self.up else x)

class Sequence(nn.Sequential):
    def forward(self, x, emb):
        for layer in self:
            x = layer(x, emb) if isinstance(layer, (ResBlock, AttentionBlock, Resample)) else layer(x)
        return x

class Denoiser(nn.Module):
    def __init__(self, width=32, levels=(1, 2, 2)):
        super().__init__()
        emb = 4 * width
        self.width, self.time_embed = width, nn.Sequential(nn.Linear(width, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.input_blocks = nn.ModuleList([Sequence(nn.Conv2d(3, width, 3, padding=1))])
        widths, channels = [width], width
        for k, level in enumerate(levels):
            layers = [ResBlock(channels, width * level, emb)]
            channels = width * level
            self.input_blocks.append(Sequence(*layers, *([AttentionBlock(channels, 4)] if k else [])))
            widths.append(channels)
            if k + 1 < len(levels):
                self.input_blocks.append(Sequence(Resample(channels, False)))
                widths.append(channels)
        self.middle = Sequence(
            ResBlock(channels, channels, emb), AttentionBlock(channels, 4), ResBlock(channels, channels, emb))
        self.output_blocks = nn.ModuleList([])
        for k, level in reversed(list(enumerate(levels))):
            for i in range(2):
                layers = [ResBlock(channels + widths.pop(), width * level, emb)]
                channels = width * level
                if k and i:
                    layers.append(Resample(channels, True))
                self.output_blocks.append(Sequence(*layers))
        self.out = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1))

    def forward(self, x, timesteps):
        emb, skips = self.time_embed(timestep_embedding(timesteps, self.width)), []
        h = x
        for block in self.input_blocks:
            h = block(h, emb)
            skips.append(h)
        h = self.middle(h, emb)
        for block in self.output_blocks:
            h = block(torch.cat([h, skips.pop()], dim=1), emb)
        return self.out(h)

model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
clean, noise, steps = normal(2, 3, 32, 32), normal(2, 3, 32, 32, seed=1), random_labels(1000, 2)
inputs = clean, steps
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)

def loss_of():
    a = alphas[steps][:, None, None, None]
    return F.mse_loss(model(a.sqrt() * clean + (1 - a).sqrt() * noise, steps), noise)
"""
    + STEP
)

PPO = """
Categorical = torch.distributions.Categorical

class ActorCritic(nn.Module):
    def __init__(self, states=8, actions=4, width=64):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(states, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, actions))
        self.critic = nn.Sequential(
            nn.Linear(states, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def get_value(self, x):
        return self.critic(x)

    def forward(self, x, action):
        probs = Categorical(logits=self.actor(x), validate_args=False)
        return probs.log_prob(action), probs.entropy(), self.critic(x)

model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5)
inputs = normal(256, 8), random_labels(4, 256)
old_log_prob, returns, old_values = -normal(256).abs(), normal(256, seed=2), normal(256, seed=3)
settings = {"clip": 0.2, "entropy": 0.01, "value": 0.5, "norm": True}

def loss_of():
    log_prob, entropy, value = model(*inputs)
    value, advantages = value.view(-1), returns - old_values
    ratio = (log_prob - old_log_prob).exp()
    if settings["norm"]:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clip = settings["clip"]
    policy = torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
    clipped = old_values + torch.clamp(value - old_values, -clip, clip)
    value_loss = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
    return policy - settings["entropy"] * entropy.mean() + settings["value"] * value_loss

def step():
    loss = loss_of()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss
"""

PROGRAMS = {
    "MLP": MLP + IMAGES,
    "CNN": CNN + IMAGES,
    "ResNet-18": RESNET18 + IMAGES,
    "ResNet-50": RESNET50 + CLASSIFIER,
    "MobileNetV2": MOBILENETV2 + CLASSIFIER,
    "EfficientNet-B0": EFFICIENTNET + CLASSIFIER,
    "ConvNeXt-tiny": CONVNEXT + CLASSIFIER,
    "ViT-tiny": VIT + "\nmodel = ViT()\n" + VIT_TAIL,
    "DeiT": VIT + "\nmodel = ViT(384, 12, 6, 2)\n" + VIT_TAIL,
    "UNet": UNET,
    "VGG-11": VGG11 + CLASSIFIER,
    "DenseNet-121": DENSENET121 + CLASSIFIER,
    "GPT 4x128": GPT + IMAGES,
    "GPT-2": GPT2,
    "BERT-base": BERT,
    "T5-small": T5,
    "LLaMA 6x256": LLAMA,
    "LSTM": LSTM,
    "translation": TRANSLATION,
    "DLRM": DLRM,
    "PointNet": POINTNET,
    "VAE": SMALL_VAE + STEP + IMAGES,
    "DCGAN": DCGAN,
    "diffusion UNet": DIFFUSION,
    "PPO": PPO,
}
