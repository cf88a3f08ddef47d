"""Clouds of points: PointNet with its transforms, farthest points and balls, edges of nearest neighbours, Chamfer and Hausdorff."""

from __future__ import print_function

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data
from torch.autograd import Variable

np.random.seed(11)
torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=4, sci_mode=False)
names = ["sphere", "cube", "torus"]


def shape(kind, n):
    if kind == 0:
        p = np.random.randn(n, 3)
        return p / np.linalg.norm(p, axis=1, keepdims=True)
    if kind == 1:
        p = np.random.uniform(-1, 1, (n, 3))
        p[np.arange(n), np.random.randint(0, 3, n)] = np.sign(np.random.randn(n))
        return p
    a, b = np.random.uniform(0, 2 * np.pi, (2, n))
    return np.stack(
        [(1 + 0.3 * np.cos(b)) * np.cos(a), (1 + 0.3 * np.cos(b)) * np.sin(a), 0.3 * np.sin(b)], 1
    )


class Shapes(torch.utils.data.Dataset):
    def __init__(self, n=48, npoints=64, augment=True):
        self.items = [(shape(i % 3, npoints).astype(np.float64), i % 3) for i in range(n)]
        self.augment = augment

    def __getitem__(self, index):
        points, cls = self.items[index]
        if self.augment:
            points = points - np.expand_dims(np.mean(points, axis=0), 0)
            points = points / np.max(np.sqrt(np.sum(points**2, axis=1)), 0)
            theta = 0.1 * index
            r = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
            points[:, [0, 2]] = points[:, [0, 2]].dot(r)
        return torch.from_numpy(points), torch.from_numpy(np.array([cls]).astype(np.int64))

    def __len__(self):
        return len(self.items)


class STNkd(nn.Module):
    def __init__(self, k=3):
        super(STNkd, self).__init__()
        self.conv1 = torch.nn.Conv1d(k, 16, 1)
        self.conv2 = torch.nn.Conv1d(16, 32, 1)
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, k * k)
        self.relu = nn.ReLU()
        self.bn1 = nn.BatchNorm1d(16)
        self.bn2 = nn.BatchNorm1d(32)
        self.bn3 = nn.BatchNorm1d(16)
        self.k = k

    def forward(self, x):
        batchsize = x.size()[0]
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2, keepdim=True)[0]
        x = x.view(-1, 32)
        x = self.fc2(F.relu(self.bn3(self.fc1(x))))
        iden = (
            Variable(torch.from_numpy(np.eye(self.k).flatten().astype(np.float64)))
            .view(1, -1)
            .repeat(batchsize, 1)
        )
        if x.is_cuda:
            iden = iden.cuda()
        return (x + iden).view(-1, self.k, self.k)


class PointNet(nn.Module):
    def __init__(self, k=3, feature_transform=True):
        super(PointNet, self).__init__()
        self.stn = STNkd(k=3)
        self.conv1 = torch.nn.Conv1d(3, 16, 1)
        self.conv2 = torch.nn.Conv1d(16, 32, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm1d(16), nn.BatchNorm1d(32, momentum=None)
        self.fstn = STNkd(k=16) if feature_transform else None
        self.fc = nn.Sequential(
            nn.Linear(32, 16, bias=False),
            nn.BatchNorm1d(16),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.0),
            nn.Linear(16, k),
        )

    def forward(self, x):
        trans = self.stn(x)
        x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        trans_feat = None
        if self.fstn is not None:
            trans_feat = self.fstn(x)
            x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)
        x, critical = torch.max(self.bn2(self.conv2(x)), 2)
        return F.log_softmax(self.fc(x), dim=1), trans_feat, critical


def feature_transform_regularizer(trans):
    d = trans.size()[1]
    I = torch.eye(d)[None, :, :]  # noqa: E741
    return torch.mean(torch.norm(torch.bmm(trans, trans.transpose(2, 1)) - I, dim=(1, 2)))


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    return (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=6, idx=None):
    batch_size, num_dims, num_points = x.size()
    if idx is None:
        idx = knn(x, k=k)
    idx_base = torch.arange(0, batch_size).view(-1, 1, 1) * num_points
    idx = (idx + idx_base).view(-1)
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size * num_points, -1)[idx, :].view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()


class DGCNN(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.bn = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(24)])
        self.convs = nn.ModuleList()
        for n, (i, o) in enumerate(((6, 16), (32, 24))):
            self.convs.append(
                nn.Sequential(
                    nn.Conv2d(i, o, kernel_size=1, bias=False), self.bn[n], nn.LeakyReLU(negative_slope=0.2)
                )
            )
        self.conv = nn.Sequential(nn.Conv1d(40, 32, 1, bias=False), nn.GroupNorm(4, 32), nn.SiLU())
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        kept = []
        for conv in self.convs:
            x = conv(get_graph_feature(x)).max(dim=-1, keepdim=False)[0]
            kept.append(x)
        x = self.conv(torch.cat(kept, dim=1))
        x1 = F.adaptive_max_pool1d(x, 1).view(len(x), -1)
        x2 = F.adaptive_avg_pool1d(x, 1).view(len(x), -1)
        return self.linear(torch.cat((x1, x2), 1))


def square_distance(src, dst):
    B, N, _ = src.shape
    _, M, _ = dst.shape
    dist = -2 * torch.matmul(src, dst.permute(0, 2, 1))
    dist += torch.sum(src**2, -1).view(B, N, 1)
    dist += torch.sum(dst**2, -1).view(B, 1, M)
    return dist


def index_points(points, idx):
    view_shape = list(idx.shape)
    view_shape[1:] = [1] * (len(view_shape) - 1)
    repeat_shape = list(idx.shape)
    repeat_shape[0] = 1
    batch_indices = torch.arange(points.shape[0], dtype=torch.long).view(view_shape).repeat(repeat_shape)
    return points[batch_indices, idx, :]


def farthest_point_sample(xyz, npoint):
    B, N, C = xyz.shape
    centroids = torch.zeros(B, npoint, dtype=torch.long)
    distance = torch.ones(B, N) * 1e10
    farthest = torch.zeros((B,), dtype=torch.long)
    batch_indices = torch.arange(B, dtype=torch.long)
    for i in range(npoint):
        centroids[:, i] = farthest
        centroid = xyz[batch_indices, farthest, :].view(B, 1, 3)
        dist = torch.sum((xyz - centroid) ** 2, -1)
        mask = dist < distance
        distance[mask] = dist[mask]
        farthest = torch.max(distance, -1)[1]
    return centroids


def query_ball_point(radius, nsample, xyz, new_xyz):
    B, N, C = xyz.shape
    _, S, _ = new_xyz.shape
    group_idx = torch.arange(N, dtype=torch.long).view(1, 1, N).repeat([B, S, 1])
    sqrdists = square_distance(new_xyz, xyz)
    group_idx[sqrdists > radius**2] = N
    group_idx = group_idx.sort(dim=-1)[0][:, :, :nsample]
    group_first = group_idx[:, :, 0].view(B, S, 1).repeat([1, 1, nsample])
    mask = group_idx == N
    group_idx[mask] = group_first[mask]
    return group_idx


def three_interpolate(xyz1, xyz2, points2):
    dists, idx = square_distance(xyz1, xyz2).sort(dim=-1)
    dists, idx = dists[:, :, :3], idx[:, :, :3]
    recip = 1.0 / (dists + 1e-8)
    weight = recip / torch.sum(recip, dim=2, keepdim=True)
    return torch.sum(index_points(points2, idx) * weight.view(*weight.shape, 1), dim=2)


def chamfer(a, b):
    d = torch.cdist(a, b)
    return d.min(2).values.mean(1) + d.min(1).values.mean(1), torch.max(d.amin(2).amax(1), d.amin(1).amax(1))


def initialise(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1 or classname.find("Linear") != -1:
        m.weight.data = (
            torch.from_numpy(np.random.randn(*m.weight.shape)).double() / m.weight[0].numel() ** 0.5
        )
        if m.bias is not None:
            m.bias.data.fill_(0)


dataset = Shapes()
loader = torch.utils.data.DataLoader(
    dataset, batch_size=12, shuffle=False, num_workers=int(0), drop_last=True
)
for title, net in (("pointnet", PointNet()), ("dgcnn", DGCNN())):
    net.apply(initialise)
    optimizer = optim.Adam(net.parameters(), lr=0.01, betas=(0.9, 0.999))
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(3):
        net = net.train()
        correct, total = 0, 0.0
        for i, data in enumerate(loader, 0):
            points, target = data
            target = target[:, 0]
            points = points.transpose(2, 1)
            optimizer.zero_grad()
            if title == "pointnet":
                pred, trans_feat, critical = net(points)
                loss = F.nll_loss(pred, target) + feature_transform_regularizer(trans_feat) * 0.001
            else:
                pred = net(points)
                loss = F.cross_entropy(pred, target, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            pred_choice = pred.data.max(1)[1]
            correct += pred_choice.eq(target.data).cpu().sum().item()
            total += loss.item()
        scheduler.step()
        print(
            "[%d] %s loss: %.4f accuracy: %.2f lr: %g"
            % (epoch, title, total / len(loader), correct / 48.0, scheduler.get_last_lr()[0])
        )
    net = net.eval()
    with torch.no_grad():
        x = torch.stack([dataset[i][0] for i in range(6)]).transpose(2, 1)
        out = net(x)
        out = out[0] if isinstance(out, tuple) else out
        print([names[k] for k in out.argmax(1)], out.softmax(1)[0])
print(
    critical.shape,
    net.bn[0].num_batches_tracked,
    net.bn[0].running_mean[:4],
    sum(p.numel() for p in net.parameters() if p.requires_grad),
)

xyz = torch.stack([dataset[i][0] for i in range(3)])
fps_idx = farthest_point_sample(xyz, 8)
new_xyz = index_points(xyz, fps_idx)
idx = query_ball_point(0.6, 5, xyz, new_xyz)
grouped = index_points(xyz, idx) - new_xyz.view(3, 8, 1, 3)
print(fps_idx, idx[0], grouped.norm(dim=-1).max(), square_distance(new_xyz, new_xyz)[0, :2].abs())
print(three_interpolate(xyz, new_xyz, new_xyz)[0, :3], chamfer(xyz, new_xyz))
moved = new_xyz.clone().requires_grad_()
opt = optim.RMSprop([moved], lr=0.01, momentum=0.5, centered=True)
for k in range(5):
    opt.zero_grad()
    near, far = chamfer(xyz, moved)
    (near.sum() + 0.1 * far.sum()).backward()
    opt.step()
print("fitted %.5f %.5f" % (near.mean(), moved.grad.abs().sum()))

# Registration: the rotation and shift that take one cloud to another.
source = xyz[1]
angle = torch.tensor(0.7)
R = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0], [0, 0, 1]])
goal = source @ R.T + torch.tensor([0.1, -0.2, 0.3])
cs, cg = source.mean(0), goal.mean(0)
U, S, V = torch.svd((source - cs).t() @ (goal - cg))
D = torch.diag(torch.tensor([1.0, 1.0, torch.det(V @ U.t()).sign()]))
found = V @ D @ U.t()
print(found.abs(), cg - found @ cs, (source @ found.T + (cg - found @ cs) - goal).abs().max() < 1e-5)
quaternion = torch.tensor([1.0, 0.2, -0.1, 0.4], requires_grad=True)


def quaternion_to_matrix(q):
    r, i, j, k = torch.unbind(q, -1)
    two_s = 2.0 / (q * q).sum(-1)
    o = torch.stack((1 - two_s * (j * j + k * k), two_s * (i * j - k * r), two_s * (i * k + j * r),
                     two_s * (i * j + k * r), 1 - two_s * (i * i + k * k), two_s * (j * k - i * r),
                     two_s * (i * k - j * r), two_s * (j * k + i * r), 1 - two_s * (i * i + j * j)), -1)  # fmt: skip
    return o.reshape(q.shape[:-1] + (3, 3))


optimizer = optim.LBFGS([quaternion], lr=0.5, max_iter=8, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss((source - cs) @ quaternion_to_matrix(quaternion).T, goal - cg)
    loss.backward()
    return loss


print(
    "%.5f" % optimizer.step(closure),
    quaternion_to_matrix(quaternion)[0],
    torch.atan2(found[1, 0], found[0, 0]),
)
voxels = torch.zeros(4, 4, 4, dtype=torch.int32)
cells = ((xyz[0] + 1) / 2 * 4).floor().long().clamp(0, 3)
voxels.index_put_(tuple(cells.t()), torch.ones(len(cells), dtype=torch.int32), accumulate=True)
unique, inverse, counts = torch.unique(cells, dim=0, return_inverse=True, return_counts=True)
print(
    voxels.sum(),
    voxels.max(),
    unique.shape,
    counts.max(),
    torch.equal(unique[inverse], cells),
    voxels.sum((0, 1)),
)
means = torch.zeros(len(unique), 3).scatter_reduce(
    0, inverse[:, None].expand(-1, 3), xyz[0], "mean", include_self=False
)
volume = F.avg_pool3d(F.conv3d(voxels[None, None].double(), torch.ones(2, 1, 2, 2, 2)), 2, stride=1)
print(
    means[:2],
    volume.shape,
    volume.mean(),
    F.grid_sample(volume[:, :1], xyz[:1, None, None] * 0.5, align_corners=True).shape,
)
