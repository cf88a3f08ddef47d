"""A siamese network with triplets, distillation of a teacher, a style transferred by L-BFGS, a gradient penalty."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(0)
rng = np.random.default_rng(3)
torch.set_default_dtype(torch.float64)


def initialized(net, scale=0.3):
    for m in net.modules():
        if hasattr(m, "reset_parameters"):
            for p in m.parameters(recurse=False):
                p.data = torch.from_numpy(rng.normal(0, scale, tuple(p.shape)))
    return net


class SiameseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = initialized(nn.Sequential(nn.Linear(6, 16), nn.PReLU(), nn.Linear(16, 4)))

    def forward(self, *xs):
        return tuple(F.normalize(self.embed(x), p=2, dim=-1) for x in xs)


labels = torch.arange(60) % 3
x = torch.from_numpy(rng.normal(0, 0.6, (60, 6))) + F.one_hot(labels, 6) * 2
anchor, positive, negative = x[0:27], x[3:30], x[1:28]
net = SiameseNet()
criterion = nn.TripletMarginLoss(margin=0.5, p=2, swap=True)
optimizer = optim.RAdam(net.parameters(), lr=0.02)
for step in range(21):
    loss = criterion(*net(anchor, positive, negative))
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}")
(e,) = net(x)
distances = torch.cdist(e, e) + torch.eye(60) * 9
print("nearest is of the same class", (labels[distances.argmin(1)] == labels).double().mean() > 0.9)
a, b = e[:4].detach(), e[4:8].detach()
print(F.pairwise_distance(a, b), F.cosine_similarity(a, b), F.pdist(a), sep="\n")
print(
    nn.CosineEmbeddingLoss(margin=0.1)(a, b, torch.tensor([1, -1, 1, -1])),
    nn.MarginRankingLoss()(a[:, 0], b[:, 0], torch.ones(4)),
)
print(
    nn.TripletMarginWithDistanceLoss(distance_function=lambda p, q: 1 - F.cosine_similarity(p, q))(
        a, b, a.flip(0)
    )
)
print(
    nn.HingeEmbeddingLoss()(a, torch.sign(b)),
    nn.MultiMarginLoss()(a, labels[:4]),
    nn.SoftMarginLoss()(a, torch.sign(b)),
)

teacher = initialized(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)))
student = initialized(nn.Sequential(nn.Linear(6, 4), nn.SiLU(), nn.Linear(4, 3)))
optimizer = optim.Adam(teacher.parameters(), lr=0.02)
for _ in range(30):
    optimizer.zero_grad()
    F.cross_entropy(teacher(x), labels).backward()
    optimizer.step()
teacher.eval()
T, soft_weight = 2.0, 0.25
optimizer = optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
    ],
    milestones=[5],
)
for epoch in range(16):
    with torch.no_grad():
        teacher_logits = teacher(x)
    logits = student(x)
    soft_targets = F.softmax(teacher_logits / T, dim=-1)
    soft_prob = F.log_softmax(logits / T, dim=-1)
    soft_loss = nn.KLDivLoss(reduction="batchmean")(soft_prob, soft_targets) * T**2
    loss = soft_weight * soft_loss + (1 - soft_weight) * F.cross_entropy(logits, labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if epoch % 5 == 0:
        print(f"{epoch} {loss.item():.5f} lr {scheduler.get_last_lr()[0]:.5f}")


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


cnn = initialized(
    nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
)
line = torch.linspace(0, 1, 16)
content = torch.stack([line.outer(line), line.outer(1 - line), line.expand(16, 16)]).unsqueeze(0)
style = (
    torch.stack([line.repeat(16, 1) * 20, line.repeat(16, 1).T * 30, line.repeat(16, 1) * 9]).sin() * 0.5
    + 0.5
)[None]
model, content_losses, style_losses, i = nn.Sequential(), [], [], 0
for layer in copy.deepcopy(cnn).children():
    if isinstance(layer, nn.Conv2d):
        i += 1
        name = f"conv_{i}"
    else:
        name, layer = f"relu_{i}", nn.ReLU(inplace=False)
    model.add_module(name, layer)
    if name == "conv_2":
        content_losses.append(ContentLoss(model(content).detach()))
        model.add_module("content_loss_2", content_losses[-1])
    if name.startswith("conv"):
        style_losses.append(StyleLoss(model(style).detach()))
        model.add_module(f"style_loss_{i}", style_losses[-1])
print(model)
input_img = content.clone()
input_img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img], lr=0.5, max_iter=5)
run = [0]
while run[0] <= 20:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = sum(sl.loss for sl in style_losses) * 1e4
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        if run[0] % 5 == 0:
            print("run {}: style {:.5f} content {:.5f}".format(run, style_score.item(), content_score.item()))
        return loss

    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
print(input_img.shape, input_img.is_leaf, sorted(optimizer.state_dict()["state"][0])[:4])
strong = optim.LBFGS(
    [p := nn.Parameter(torch.tensor([-1.2, 1.0]))], line_search_fn="strong_wolfe", max_iter=40
)


def rosenbrock():
    strong.zero_grad()
    value = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    value.backward()
    return value


print(strong.step(rosenbrock), torch.allclose(p, torch.ones(2), atol=1e-4))

critic = initialized(nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 8)), nn.Softplus(), nn.Linear(8, 1)))
print(critic, [n for n, _ in critic.named_parameters()][:2])
critic = initialized(nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1)))
real, fake = x[:16, :2], x[16:32, :2] - 1
optimizer = optim.Adam(critic.parameters(), lr=0.02, betas=(0.0, 0.9))
for step in range(11):
    alpha = torch.linspace(0, 1, 16).unsqueeze(1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    gradients = torch.autograd.grad(
        outputs=scores,
        inputs=mixed,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
        retain_graph=True,
    )[0]
    penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"{step} {loss.item():.5f} {penalty.item():.6f}")
