"""Image classification with augmentation: a folder of pictures, a small CNN, a schedule, the best checkpoint."""

import argparse
import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from PIL import Image, ImageDraw
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, transforms

parser = argparse.ArgumentParser(description="Shapes")
parser.add_argument("--epochs", type=int, default=6, metavar="N")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--no-cuda", action="store_true", default=False)
args = parser.parse_args()

torch.manual_seed(0)
np.random.seed(0)
use_cuda = not args.no_cuda and torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {"num_workers": 1}


def draw(kind, rng):
    image = Image.new("RGB", (36, 36), tuple(int(v) for v in rng.randint(0, 80, 3)))
    x, y, size = rng.randint(6, 14), rng.randint(6, 14), rng.randint(12, 18)
    shape = {"circle": "ellipse", "square": "rectangle"}[kind]
    getattr(ImageDraw.Draw(image), shape)(
        [x, y, x + size, y + size], fill=tuple(int(v) for v in rng.randint(120, 255, 3))
    )
    return image


root = tempfile.mkdtemp()
rng = np.random.RandomState(0)
for kind in ("circle", "square"):
    os.makedirs(os.path.join(root, kind))
    for k in range(96):
        draw(kind, rng).save(os.path.join(root, kind, f"{k:03d}.png"))

data_transforms = {
    "train": transforms.Compose(
        [
            transforms.RandomResizedCrop(32, scale=(0.8, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.2, contrast=0.2),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    ),
    "val": transforms.Compose(
        [
            transforms.Resize(36),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    ),
}
parts = random_split(range(192), [160, 32], generator=torch.Generator().manual_seed(1))
image_datasets = {
    x: torch.utils.data.Subset(datasets.ImageFolder(root, data_transforms[x]), list(part))
    for x, part in zip(["train", "val"], parts)
}
dataloaders = {
    x: DataLoader(image_datasets[x], batch_size=args.batch_size, shuffle=x == "train", **kwargs)
    for x in ["train", "val"]
}
dataset_sizes = {x: len(image_datasets[x]) for x in ["train", "val"]}
class_names = datasets.ImageFolder(root).classes
print("classes", class_names, "sizes", dataset_sizes)


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((4, 4)),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.1), nn.Linear(32 * 4 * 4, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = self.features(x)
        x = x.view(x.size(0), -1)
        return self.classifier(x)


def train_model(model, criterion, optimizer, scheduler, num_epochs):
    since = time.time()
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc, history = 0.0, []
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            model.train() if phase == "train" else model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device, non_blocking=True)
                labels = labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            history.append((phase, epoch_loss))
            if phase == "val" and epoch_acc >= best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
                torch.save({"epoch": epoch, "state_dict": model.state_dict(), "acc": best_acc}, "best.pt")
    assert time.time() - since < 600
    model.load_state_dict(best_model_wts)
    return model, best_acc, history


model = Net(len(class_names)).to(device)
print("parameters", sum(p.numel() for p in model.parameters() if p.requires_grad))
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
os.chdir(root)
model, best_acc, history = train_model(model, criterion, optimizer, scheduler, args.epochs)
train_losses = [loss for phase, loss in history if phase == "train"]
print("falls", train_losses[-1] < train_losses[0], "accurate", bool(best_acc > 0.8))
print("lr", round(optimizer.param_groups[0]["lr"], 6))

checkpoint = torch.load("best.pt", map_location=device)
fresh = Net(2).to(device)
print(fresh.load_state_dict(checkpoint["state_dict"]))
fresh.eval()
confusion = torch.zeros(2, 2, dtype=torch.int64)
with torch.no_grad():
    for inputs, labels in dataloaders["val"]:
        pred = F.log_softmax(fresh(inputs), dim=1).argmax(dim=1, keepdim=True)
        for t, p in zip(labels.view(-1), pred.view(-1)):
            confusion[t.long(), p.long()] += 1
print(
    "counted", confusion.sum().item(), "as saved", abs(confusion.diag().sum() / 32 - best_acc).item() < 1e-6
)
print(model)
