"""A U-Net with an encoder of another library, losses and metrics."""

import segmentation_models_pytorch as smp
from made import data, fill, show, whole

x, y = data(1, 3, 64, 64), whole(1, 64, 64, below=3)
for kind in (smp.Unet, smp.FPN, smp.DeepLabV3Plus):
    model = fill(kind("resnet18", encoder_weights=None, classes=3)).eval()
    out = model(x)
    show(kind.__name__, out)
for loss in (
    smp.losses.DiceLoss("multiclass"),
    smp.losses.FocalLoss("multiclass"),
    smp.losses.LovaszLoss("multiclass"),
):
    show(type(loss).__name__, loss(out, y))
counts = smp.metrics.get_stats(out.argmax(1), y, mode="multiclass", num_classes=3)
show("iou", smp.metrics.iou_score(*counts, reduction="macro"))
out.pow(2).mean().backward()
show("gradient", next(model.parameters()).grad)
