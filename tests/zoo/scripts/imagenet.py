"""Training as it was written in old programs: Variables, meters, DataParallel, .data, learning rates set by hand, legacy names."""

from __future__ import print_function

import argparse
import os
import random
import shutil
import warnings

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed
from torch.autograd import Variable
from torch.nn import Parameter
from torch.optim.lr_scheduler import MultiStepLR, ReduceLROnPlateau
from torch.utils.data.dataloader import default_collate
from torch.utils.data.sampler import SequentialSampler, SubsetRandomSampler

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description="PyTorch Training")
parser.add_argument("--epochs", default=3, type=int, metavar="N")
parser.add_argument("-b", "--batch-size", default=16, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, metavar="LR", dest="lr")
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--no-cuda", action="store_true", default=False)
parser.add_argument("--seed", default=1, type=int)
args = parser.parse_args([])
args.cuda = not args.no_cuda and torch.cuda.is_available()
random.seed(args.seed)
torch.manual_seed(args.seed)
if args.cuda:
    torch.cuda.manual_seed(args.seed)
torch.cuda.manual_seed_all(args.seed)
cudnn.deterministic = True
cudnn.benchmark = False
print(cudnn.enabled, torch.cuda.device_count(), torch.backends.cudnn.deterministic)
rng = np.random.RandomState(0)
best_acc1 = 0


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super(BasicBlock, self).__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        residual = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=3):
        self.inplanes = 4
        super(ResNet, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 4, layers[0])
        self.layer2 = self._make_layer(block, 8, layers[1], stride=2)
        self.avgpool = nn.AvgPool2d(2, stride=1)
        self.fc = nn.Linear(8 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.copy_(torch.from_numpy(rng.normal(0, np.sqrt(2.0 / n), tuple(m.weight.size()))))
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()
            elif isinstance(m, nn.Linear):
                init.constant_(m.weight, 0.05), init.constant_(m.bias, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        for i in range(1, blocks):
            layers.append(block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        x = x.view(x.size(0), -1)
        return self.fc(x)


class AverageMeter(object):
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk, batch_size = max(topk), target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / batch_size) for k in topk]


def adjust_learning_rate(optimizer, epoch):
    lr = args.lr * (0.1 ** (epoch // 2))
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


labels = torch.LongTensor(rng.randint(0, 3, 48))
images = torch.FloatTensor(rng.rand(48, 1, 16, 16)) + labels.float().view(-1, 1, 1, 1) * torch.linspace(
    0, 1, 16
)
dataset = torch.utils.data.TensorDataset(images, labels)
train_loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=args.batch_size,
    sampler=SequentialSampler(dataset),
    num_workers=0,
    pin_memory=args.cuda,
)
val_loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=args.batch_size,
    shuffle=False,
    sampler=SubsetRandomSampler(range(10)),
    collate_fn=default_collate,
)
model = torch.nn.DataParallel(ResNet(BasicBlock, [1, 1]))
if args.cuda:
    model = model.cuda()
print(type(model).__name__, type(model.module).__name__, list(model.state_dict())[:2])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=1e-4)


def train(epoch):
    losses, top1, top2 = (
        AverageMeter("Loss", ":.4f"),
        AverageMeter("Acc@1", ":6.2f"),
        AverageMeter("Acc@2", ":6.2f"),
    )
    model.train()
    for batch_idx, (input, target) in enumerate(train_loader):
        if args.cuda:
            input, target = input.cuda(non_blocking=True), target.cuda(non_blocking=True)
        input_var, target_var = Variable(input), Variable(target)
        output = model(input_var)
        loss = criterion(output, target_var)
        acc1, acc2 = accuracy(output.data, target, topk=(1, 2))
        losses.update(loss.data.item(), input.size(0))
        top1.update(acc1[0], input.size(0)), top2.update(acc2[0], input.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch == 0:
            print(
                "Epoch: [{0}][{1}/{2}]\t{3}\t{4}\t{5}".format(
                    epoch, batch_idx, len(train_loader), losses, top1, top2
                )
            )
    return losses.avg


for epoch in range(args.epochs):
    adjust_learning_rate(optimizer, epoch)
    loss = train(epoch)
    is_best = loss > best_acc1
    save_checkpoint(
        {
            "epoch": epoch + 1,
            "arch": "resnet",
            "state_dict": model.state_dict(),
            "best_acc1": torch.tensor(12.5),
            "optimizer": optimizer.state_dict(),
            "args": args,
        },
        is_best,
    )
print("falls", loss < 1.2, optimizer.param_groups[0]["lr"])
checkpoint = torch.load("checkpoint.pth.tar", map_location=lambda storage, loc: storage, weights_only=False)
print(sorted(checkpoint), checkpoint["args"].lr, checkpoint["best_acc1"])
new_state_dict = {k.replace("module.", ""): v for k, v in checkpoint["state_dict"].items()}
fresh = ResNet(BasicBlock, [1, 1])
print(fresh.load_state_dict(new_state_dict))
model_dict = fresh.state_dict()
model_dict.update({k: v for k, v in new_state_dict.items() if k in model_dict and not k.startswith("fc")})
fresh.load_state_dict(model_dict)
torch.save(fresh, "model.pth")
again = torch.load("model.pth", weights_only=False)
fresh.eval(), again.eval()
print(torch.equal(fresh(images[:2]), again(images[:2])), type(again).__name__)
correct = total = 0
fresh.eval()
for data, target in val_loader:
    with torch.no_grad():
        output = fresh(Variable(data))
    pred = output.data.max(1, keepdim=True)[1]
    correct += pred.eq(target.data.view_as(pred)).cpu().sum()
    total += len(target)
print("Test set: {}/{} {}".format(int(correct) <= total, total, type(correct).__name__))
x = Variable(torch.Tensor([[1, 2], [3, 4]]), requires_grad=True)
y = torch.mean(x**2)
y.backward()
print(x.grad.data, x.data, y.data.item(), type(x), isinstance(x, Variable), x.type(), x.is_leaf)
print(
    torch.FloatTensor(2, 3).zero_(),
    torch.LongTensor([1, 2]).type(torch.FloatTensor),
    torch.IntTensor(3).fill_(7),
    torch.ByteTensor([1, 0]),
    torch.Tensor(2).fill_(1).new(3).zero_(),
)
t = torch.Tensor([[2, 1], [1, 3]])
w = (
    t.new([1, 2]),
    t.new_tensor([3]),
    t.new(1, 2).size(),
    t.new_zeros(2).type("torch.DoubleTensor"),
    t.type(torch.LongTensor).type(),
)
print(*w)
u, s, v = torch.svd(t)
q, r = torch.qr(t)
print(
    s,
    torch.allclose(q @ r, t),
    torch.cholesky(t),
    torch.ger(t[0], t[1]),
    torch.inverse(t).diag(),
    t.det(),
    t.trace(),
)
print(
    torch.addmm(t, t, t, beta=0.5, alpha=2),
    torch.addcmul(t, t, t, value=0.1)[0],
    torch.addcdiv(t, t, t, value=2)[0],
    t.renorm(2, 0, 1.0),
    sep="\n",
)
print(
    F.upsample(t[None, None], scale_factor=2, mode="nearest").shape,
    F.sigmoid(t)[0],
    F.tanh(t)[0],
    nn.functional.softmax(t, dim=1)[0],
    F.log_softmax(t, dim=1).data[0],
)
print(
    nn.MSELoss(size_average=False)(t, t + 1),
    nn.L1Loss(reduce=False)(t, t + 1),
    nn.NLLLoss2d()(torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2).long()),
)
print(
    nn.utils.clip_grad_norm(fresh.parameters(), 1.0) if hasattr(nn.utils, "clip_grad_norm") else "gone",
    t.cuda if False else "cpu",
    torch.__version__ >= "1.0",
)
print(
    torch.range(1, 3),
    torch.arange(3).float() / 2,
    torch.from_numpy(np.eye(2)).float(),
    t.numpy().dtype,
    t.storage().tolist(),
    t.stride(),
    t.storage_offset(),
)
print(
    Parameter(t),
    torch.nn.utils.parameters_to_vector([Parameter(t)]),
    t.unsqueeze(0).expand(2, 2, 2).contiguous().view(-1).sum(),
    t.byte(),
    t.gt(1) & t.lt(3),
    sep="\n",
)
scheduler = MultiStepLR(optimizer, milestones=[1, 2], gamma=0.1)
for _ in range(3):
    optimizer.step()
    scheduler.step()
    print(scheduler.get_lr(), scheduler.get_last_lr(), scheduler.last_epoch)
plateau = (
    ReduceLROnPlateau(optimizer, "min", patience=0, verbose=True)
    if "verbose" in ReduceLROnPlateau.__init__.__code__.co_varnames
    else ReduceLROnPlateau(optimizer, "min", patience=0)
)
for v in (1.0, 1.1, 1.2):
    plateau.step(v)
print(["%.0e" % g["lr"] for g in optimizer.param_groups], os.path.exists("model_best.pth.tar"))
