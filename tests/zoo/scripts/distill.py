"""A small network learns from a large one: features caught by hooks, averaged weights, and what is cut off afterwards."""

import copy
import math
from collections import OrderedDict, defaultdict
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(11)


def conv_bn(i, o, stride=1, groups=1):
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(i, o, 3, stride, 1, groups=groups, bias=False),
            bn=nn.BatchNorm2d(o),
            act=nn.Hardswish(),
        )
    )


class SqueezeExcite(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // ratio, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels // ratio, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        return x * self.gate(x)


class Net(nn.Module):
    def __init__(self, widths, attention=False, classes=4):
        super().__init__()
        stages = []
        for k, (i, o) in enumerate(zip((1, *widths), widths)):
            stages.append(
                (
                    f"stage{k}",
                    nn.Sequential(conv_bn(i, o, 1 + (k > 0)), *([SqueezeExcite(o)] if attention else [])),
                )
            )
        self.features = nn.Sequential(OrderedDict(stages))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(widths[-1], classes)
        self.register_buffer("temperature", torch.tensor(3.0), persistent=False)

    def forward(self, x, *, scale=1.0):
        return self.classifier(self.pool(self.features(x * scale)).flatten(1))


def numbered(model):
    with torch.no_grad():
        for k, (name, p) in enumerate(sorted(model.named_parameters())):
            if p.dim() > 1:
                p.copy_(
                    torch.sin(torch.arange(p.numel()) * (1.3 + k)).view_as(p) / math.sqrt(p[0].numel() / 2)
                )
            elif name.endswith("bias"):
                p.zero_()
    return model


class Features:
    """What modules of these names give, as long as the block lasts."""

    def __init__(self, model, names):
        self.model, self.names, self.seen, self.handles = model, names, {}, []

    def catch(self, name, module, args, output):
        self.seen[name] = output

    def __enter__(self):
        modules = dict(self.model.named_modules())
        self.handles = [modules[n].register_forward_hook(partial(self.catch, n)) for n in self.names]
        return self

    def __exit__(self, *exc):
        for handle in self.handles:
            handle.remove()


@contextmanager
def frozen(model):
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    model.requires_grad_(False)
    try:
        yield model
    finally:
        for n, p in model.named_parameters():
            p.requires_grad_(flags[n])


def attention(f):
    return F.normalize(f.pow(2).mean(1).flatten(1))


# Blobs in one of four corners.
labels = torch.from_numpy(rng.integers(0, 4, 96))
images = torch.from_numpy(rng.normal(0, 0.3, (96, 1, 12, 12)))
for image, label in zip(images, labels):
    r, c = divmod(label.item(), 2)
    image[0, 6 * r : 6 * r + 6, 6 * c : 6 * c + 6] += 1
train = DataLoader(TensorDataset(images[:64], labels[:64]), batch_size=16)
test_x, test_y = images[64:], labels[64:]

teacher, student = numbered(Net((8, 16, 16), attention=True)), numbered(Net((4, 8, 8)))
print(student)
print({k: sum(p.numel() for p in m.parameters()) for k, m in (("teacher", teacher), ("student", student))})
print(list(student.state_dict())[-4:], "temperature" in dict(student.named_buffers()))

# The teacher, with an average of its weights.
decay, plain = [], []
for name, p in teacher.named_parameters():
    (plain if p.ndim <= 1 or name.endswith(".bias") else decay).append(p)
optimizer = torch.optim.NAdam(
    [{"params": decay, "weight_decay": 1e-2, "decoupled_weight_decay": True}, {"params": plain}], lr=1e-2
)
ema = AveragedModel(teacher, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(3):
    teacher.train()
    for k, (x, y) in enumerate(train):
        lam = 0.7 + 0.05 * k
        other = y.flip(0)
        mixed = x.lerp(x.flip(0), 1 - lam)
        out = teacher(mixed)
        loss = lam * criterion(out, y) + (1 - lam) * criterion(out, other)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(teacher.parameters(), 0.5)
        optimizer.step()
        ema.update_parameters(teacher)
    teacher.eval(), ema.eval()
    with torch.inference_mode():
        right = [(m(test_x).argmax(1) == test_y).double().mean().item() for m in (teacher, ema)]
    print("teacher", epoch, f"{loss.item():.6f}", *(f"{r:.3f}" for r in right), int(ema.n_averaged))

# The student: logits, attention maps, and a hint through a projection of its own.
hint = numbered(nn.Conv2d(8, 16, 1))
watched = ["features.stage0", "features.stage2"]
swa = AveragedModel(student)
optimizer = torch.optim.SGD([*student.parameters(), *hint.parameters()], lr=0.05, momentum=0.9, nesterov=True)
cosine = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=2)
swalr = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2, anneal_strategy="linear")
gradients = defaultdict(float)


def note(module, grad_input, grad_output, name=""):
    gradients[name] += grad_output[0].norm().item()


handles = [m.register_full_backward_hook(partial(note, name=n)) for n, m in student.features.named_children()]
scaled = student.register_forward_pre_hook(lambda m, a, k: (a, {**k, "scale": 1.1}), with_kwargs=True)
with frozen(teacher.eval()):
    for epoch in range(6):
        student.train()
        sums = torch.zeros(4)
        for x, y in train:
            with Features(teacher, watched) as t, Features(student, watched) as s, torch.no_grad():
                soft = teacher(x)
            assert not s.seen
            with Features(student, watched) as s:
                out = student(x)
            temperature = student.temperature
            kd = F.kl_div(
                F.log_softmax(out / temperature, 1),
                F.log_softmax(soft / temperature, 1),
                reduction="batchmean",
                log_target=True,
            )
            at = sum(F.mse_loss(attention(s.seen[n]), attention(t.seen[n])) for n in watched)
            fit = F.smooth_l1_loss(hint(s.seen[watched[1]]), t.seen[watched[1]], beta=0.5)
            ce = F.cross_entropy(out, y)
            loss = 0.5 * ce + kd * temperature**2 + 10 * at + 0.1 * fit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.stack([ce, kd, at, fit]).detach()
        if epoch >= 3:
            swa.update_parameters(student)
            swalr.step()
        else:
            cosine.step()
        print(
            "student",
            epoch,
            [round(v, 6) for v in (sums / len(train)).tolist()],
            f"{optimizer.param_groups[0]['lr']:.5f}",
        )
print({k: round(v, 4) for k, v in gradients.items()}, all(p.requires_grad for p in teacher.parameters()))
for handle in (*handles, scaled):
    handle.remove()
before = swa.module.features.stage0[0].bn.running_mean.clone()
update_bn(train, swa)
print(
    (swa.module.features.stage0[0].bn.running_mean - before).abs().max() > 0,
    swa.module.features.stage1[0].bn.num_batches_tracked,
)
swa.eval(), student.eval()
with torch.no_grad():
    print([(m(test_x).argmax(1) == test_y).sum().item() for m in (student, swa)])

# Folded into convolutions, pruned, constrained.
folded = copy.deepcopy(student)
for name, module in list(folded.named_modules()):
    if isinstance(module, nn.Sequential) and hasattr(module, "bn"):
        module.conv = nn.utils.fuse_conv_bn_eval(module.conv, module.bn)
        module.bn = nn.Identity()
with torch.no_grad():
    print(torch.allclose(folded(test_x), student(test_x)), [n for n, _ in folded.named_parameters()])
convs = [(m, "weight") for m in student.modules() if isinstance(m, nn.Conv2d)]
prune.global_unstructured(convs, pruning_method=prune.L1Unstructured, amount=0.4)
print([round((m.weight == 0).double().mean().item(), 4) for m, _ in convs], prune.is_pruned(student))
prune.ln_structured(student.classifier, "weight", amount=2, n=2, dim=1)
print(student.classifier.weight.abs().sum(0).gt(0).tolist(), list(student.classifier._buffers))
for m, _ in convs:
    prune.remove(m, "weight")
prune.remove(student.classifier, "weight")
print(prune.is_pruned(student), [k for k in student.state_dict() if "mask" in k])


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


square = numbered(nn.Linear(4, 4))
parametrize.register_parametrization(square, "weight", Symmetric())
print(
    square.weight.equal(square.weight.mT),
    square.parametrizations.weight.original.tril(-1).abs().sum().item(),
    square,
)
parametrize.remove_parametrizations(square, "weight")
weighted = parametrizations.weight_norm(numbered(nn.Linear(4, 3)), dim=0)
print(sorted(weighted.state_dict()), weighted.parametrizations.weight.original0.flatten())
orthogonal = parametrizations.orthogonal(numbered(nn.Linear(4, 3)))
print(
    (orthogonal.weight @ orthogonal.weight.mT - torch.eye(3)).abs().max() < 1e-12, type(orthogonal).__name__
)
with parametrize.cached():
    print(orthogonal.weight is orthogonal.weight)

# A state that does not fit says how.
state = student.state_dict()
state["classifier.weight"] = torch.zeros(2, 8)
state["more"] = state.pop("classifier.bias")
try:
    student.load_state_dict(state)
except RuntimeError as e:
    print(e)
print(student.load_state_dict({k: v for k, v in state.items() if k != "classifier.weight"}, strict=False))
