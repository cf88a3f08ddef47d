"""Models of images, data augmentation's settings, optimizers and schedules."""

import timm
import torch
from made import data, fill, show
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

for name in ("resnet10t", "vit_tiny_patch16_224", "convnext_atto", "efficientnet_lite0"):
    size = {"img_size": 32} if name.startswith("vit") else {}
    model = fill(timm.create_model(name, num_classes=5, **size)).eval()
    show(name, model(data(1, 3, 32, 32)))
features = timm.create_model("resnet10t", features_only=True).eval()
show("features", [list(f.shape) for f in features(data(1, 3, 32, 32))])
loss = LabelSmoothingCrossEntropy()(model(data(2, 3, 32, 32)), torch.tensor([1, 2]))
optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
loss.backward()
optimizer.step()
show("loss", loss)
show("stepped", next(model.parameters()))
schedule = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-5)
show("rates", [schedule._get_lr(t)[0] for t in range(6)])
