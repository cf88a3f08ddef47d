"""A style transferred as in the tutorial: loss layers put between those of a net, Gram matrices, L-BFGS on a picture."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from PIL import Image

torch.set_default_device("cpu")
rng = np.random.RandomState(5)
side = 24


def picture(kind):
    y, x = np.mgrid[0:side, 0:side]
    if kind == "stripes":
        grey = ((x // 3) % 2) * 200 + 20
    else:
        grey = 255 - np.hypot(x - side / 2, y - side / 2) * 16
    channels = np.stack([grey, grey * 0.6, 255 - grey], -1).clip(0, 255).astype(np.uint8)
    return Image.fromarray(channels)


def image_loader(image):
    array = np.asarray(image, dtype=np.float32) / 255
    return torch.from_numpy(array).permute(2, 0, 1).unsqueeze(0).contiguous()


class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super(Normalization, self).__init__()
        self.mean = mean.clone().detach().view(-1, 1, 1)
        self.std = std.clone().detach().view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


def body():
    layers, channels = [], 3
    for width in (8, 8, "M", 12, 12):
        if width == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        conv = nn.Conv2d(channels, width, kernel_size=3, padding=1)
        conv.weight.data = (
            torch.from_numpy(rng.randn(*conv.weight.shape).astype("f")) * (2 / channels / 9) ** 0.5
        )
        conv.bias.data.fill_(0.02)
        layers += [conv, nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(*layers).eval()


def get_style_model_and_losses(
    cnn, style_img, content_img, content_layers=("conv_3",), style_layers=("conv_1", "conv_2", "conv_4")
):
    cnn = copy.deepcopy(cnn)
    normalization = Normalization(torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))
    content_losses, style_losses = [], []
    model = nn.Sequential(normalization)
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = "conv_{}".format(i)
        elif isinstance(layer, nn.ReLU):
            name = "relu_{}".format(i)
            layer = nn.ReLU(inplace=False)
        elif isinstance(layer, nn.MaxPool2d):
            name = "pool_{}".format(i)
        else:
            raise RuntimeError("Unrecognized layer: {}".format(layer.__class__.__name__))
        model.add_module(name, layer)
        if name in content_layers:
            content_loss = ContentLoss(model(content_img).detach())
            model.add_module("content_loss_{}".format(i), content_loss)
            content_losses.append(content_loss)
        if name in style_layers:
            style_loss = StyleLoss(model(style_img).detach())
            model.add_module("style_loss_{}".format(i), style_loss)
            style_losses.append(style_loss)
    for i in range(len(model) - 1, -1, -1):
        if isinstance(model[i], ContentLoss) or isinstance(model[i], StyleLoss):
            break
    return model[: (i + 1)], style_losses, content_losses


def total_variation(img):
    return (img[..., 1:, :] - img[..., :-1, :]).abs().mean() + torch.diff(img, dim=-1).abs().mean()


style_img, content_img = image_loader(picture("stripes")), image_loader(picture("disc"))
assert style_img.size() == content_img.size(), "we need to import style and content images of the same size"
model, style_losses, content_losses = get_style_model_and_losses(body(), style_img, content_img)
print([name for name, _ in model.named_children()])
model.eval()
model.requires_grad_(False)
input_img = content_img.clone().requires_grad_(True)
optimizer = optim.LBFGS([input_img], lr=0.5, max_iter=6, history_size=5, line_search_fn="strong_wolfe")
run = [0]
history = []
while run[0] <= 30:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = sum(sl.loss for sl in style_losses) * 1e3
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score + 0.01 * total_variation(input_img)
        loss.backward()
        run[0] += 1
        history.append((style_score.item(), content_score.item()))
        if run[0] in (1, 2, 3, 4):
            print("run {}: style {:.2f} content {:.4f}".format(run[0], *history[-1]))
        return loss

    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
print("style falls", history[-1][0] < 0.3 * history[0][0], "evaluations", run[0] > 30)
state = optimizer.state_dict()["state"][0]
print(sorted(state), len(state["old_dirs"]))
out = (input_img[0].mul(255).round().byte()).permute(1, 2, 0).numpy()
image = Image.fromarray(out)
image.save("out.png")
print(image.size, np.asarray(Image.open("out.png")).shape, out.dtype)


# The same by a network that is trained for a style: instance norms and residual blocks, a perceptual loss.
class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels, affine=True),
            nn.ELU(),
        )

    def forward(self, x):
        return x + self.block(x)


net = nn.Sequential(
    nn.ReflectionPad2d((1, 1, 1, 1)),
    nn.Conv2d(3, 6, 3, stride=2),
    nn.InstanceNorm2d(6, affine=True),
    nn.PReLU(6),
    Residual(6),
    nn.Upsample(scale_factor=2, mode="nearest"),
    nn.ConvTranspose2d(6, 3, 3, padding=1),
    nn.Sigmoid(),
)
for p in net.parameters():
    if p.dim() > 1:
        p.data = torch.from_numpy(rng.randn(*p.shape).astype("f") * 0.1)
    elif len(p.unique()) > 1 or p.numel() == 3:
        p.data.zero_()
features = nn.Sequential(*list(model.children())[:3])
optimizer = optim.Adam(net.parameters(), 1e-2)
target = gram_matrix(features(style_img))
for step in range(12):
    optimizer.zero_grad()
    out = net(content_img)
    f = features(out)
    loss = 1e3 * F.mse_loss(gram_matrix(f), target) + F.mse_loss(f, features(content_img))
    loss.backward()
    optimizer.step()
    if step < 4:
        print(f"step {step} loss {loss.item():.2f}")
print(tuple(out.shape), "falls", loss.item() < 400)
