"""Soft actor-critic on a point that has to come home: squashed normals, twin critics, a temperature that is learnt."""

import copy
import itertools
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

rng = np.random.RandomState(3)
random.seed(3)
torch.set_printoptions(precision=4, sci_mode=False)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOG_STD_MIN, LOG_STD_MAX = -5, 2
Transition = namedtuple("Transition", "state action reward next_state done")


def mlp(sizes, activation=nn.ReLU, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


@torch.no_grad()
def init_weights(m):
    if isinstance(m, nn.Linear):
        m.weight.copy_(torch.from_numpy(rng.randn(*m.weight.shape)) / m.in_features**0.5)
        m.bias.fill_(0.0)


class World:
    def reset(self):
        self.p, self.t = rng.uniform(-1, 1, 2).astype(np.float32), 0
        return self.p.copy()

    def step(self, a):
        self.p = np.clip(self.p + 0.3 * a, -2, 2).astype(np.float32)
        self.t += 1
        return self.p.copy(), -float(np.linalg.norm(self.p)), self.t >= 10


class ReplayBuffer:
    def __init__(self, obs_dim, act_dim, size):
        self.obs_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.obs2_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros((size, act_dim), dtype=np.float32)
        self.rew_buf = np.zeros(size, dtype=np.float32)
        self.done_buf = np.zeros(size, dtype=np.float32)
        self.ptr, self.size, self.max_size = 0, 0, size

    def store(self, *t):
        t = Transition(*t)
        self.obs_buf[self.ptr], self.obs2_buf[self.ptr] = t.state, t.next_state
        self.act_buf[self.ptr], self.rew_buf[self.ptr], self.done_buf[self.ptr] = t.action, t.reward, t.done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample_batch(self, n=32):
        idxs = rng.randint(0, self.size, size=n)
        batch = dict(
            obs=self.obs_buf[idxs],
            obs2=self.obs2_buf[idxs],
            act=self.act_buf[idxs],
            rew=self.rew_buf[idxs],
            done=self.done_buf[idxs],
        )
        return {k: torch.as_tensor(v, dtype=torch.float32, device=device) for k, v in batch.items()}


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=16):
        super().__init__()
        self.net = mlp([obs_dim, hidden, hidden], output_activation=nn.ReLU)
        self.mu_layer, self.log_std_layer = nn.Linear(hidden, act_dim), nn.Linear(hidden, act_dim)
        self.register_buffer("action_scale", torch.tensor(1.0))

    def forward(self, obs, eps=None, deterministic=False):
        h = self.net(obs)
        mu, log_std = self.mu_layer(h), self.log_std_layer(h)
        std = torch.exp(torch.clamp(log_std, LOG_STD_MIN, LOG_STD_MAX))
        base = Normal(mu, std)
        u = mu if deterministic else mu + std * eps
        logp = base.log_prob(u).sum(axis=-1)
        logp -= (2 * (np.log(2) - u - F.softplus(-2 * u))).sum(axis=1)
        return torch.tanh(u) * self.action_scale, logp


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=16):
        super().__init__()
        self.q = mlp([obs_dim + act_dim, hidden, hidden, 1])

    def forward(self, obs, act):
        return torch.squeeze(self.q(torch.cat([obs, act], dim=-1)), -1)


actor = Actor(2, 2).to(device)
q1, q2 = Critic(2, 2), Critic(2, 2)
for net in (actor, q1, q2):
    net.apply(init_weights)
q1_targ, q2_targ = copy.deepcopy(q1), copy.deepcopy(q2)
for p in itertools.chain(q1_targ.parameters(), q2_targ.parameters()):
    p.requires_grad = False
print(actor)
print(
    sum(np.prod(p.shape) for p in actor.parameters()),
    sum(p.numel() for p in itertools.chain(q1.parameters(), q2.parameters()) if p.requires_grad),
)
log_alpha = torch.zeros(1, requires_grad=True, device=device)
target_entropy = -torch.prod(torch.Tensor((2,)).to(device)).item()
pi_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
q_optimizer = torch.optim.Adam(itertools.chain(q1.parameters(), q2.parameters()), lr=3e-3)
alpha_optimizer = torch.optim.Adam([log_alpha], lr=3e-3)
print(pi_optimizer)
buffer, env = ReplayBuffer(2, 2, 500), World()
returns, scores = deque(maxlen=5), 0.0
noise = lambda *s: torch.as_tensor(rng.randn(*s), dtype=torch.float32)  # noqa: E731
o = env.reset()
for t in range(300):
    if t < 60:
        a = rng.uniform(-1, 1, 2)
    else:
        with torch.inference_mode():
            a = actor(torch.as_tensor(o)[None], noise(1, 2))[0].squeeze(0).cpu().numpy()
    o2, r, d = env.step(a)
    buffer.store(o, a, r, o2, d)
    scores += r
    o = o2
    if d:
        returns.append(scores)
        o, scores = env.reset(), 0.0
    if t < 60:
        continue
    data = buffer.sample_batch()
    with torch.no_grad():
        a2, logp_a2 = actor(data["obs2"], noise(32, 2))
        q_pi_targ = torch.min(q1_targ(data["obs2"], a2), q2_targ(data["obs2"], a2))
        backup = data["rew"] + 0.95 * (1 - data["done"]) * (q_pi_targ - log_alpha.exp() * logp_a2)
    loss_q = ((q1(data["obs"], data["act"]) - backup) ** 2).mean() + (
        (q2(data["obs"], data["act"]) - backup) ** 2
    ).mean()
    q_optimizer.zero_grad(set_to_none=True)
    loss_q.backward()
    grad_norm = nn.utils.clip_grad_norm_(list(q1.parameters()) + list(q2.parameters()), 5.0)
    q_optimizer.step()
    for p in itertools.chain(q1.parameters(), q2.parameters()):
        p.requires_grad_(False)
    pi, logp_pi = actor(data["obs"], noise(32, 2))
    loss_pi = (
        log_alpha.exp().detach() * logp_pi - torch.minimum(q1(data["obs"], pi), q2(data["obs"], pi))
    ).mean()
    pi_optimizer.zero_grad()
    loss_pi.backward()
    pi_optimizer.step()
    for p in itertools.chain(q1.parameters(), q2.parameters()):
        p.requires_grad_(True)
    alpha_loss = -(log_alpha * (logp_pi + target_entropy).detach()).mean()
    alpha_optimizer.zero_grad()
    alpha_loss.backward()
    alpha_optimizer.step()
    with torch.no_grad():
        for net, targ in ((q1, q1_targ), (q2, q2_targ)):
            for p, p_targ in zip(net.parameters(), targ.parameters()):
                p_targ.data.mul_(0.99)
                p_targ.data.add_((1 - 0.99) * p.data)
    if t in (60, 61, 62):
        print(
            f"t {t} loss_q {loss_q.item():.4f} loss_pi {loss_pi.item():.4f} alpha {log_alpha.exp().item():.5f} norm {grad_norm:.3f}"
        )
print("learnt", np.mean(returns) > -9, log_alpha.item() < 0, log_alpha.grad.shape)

squashed = TransformedDistribution(
    Normal(torch.zeros(2), torch.tensor([0.5, 1.0])), [TanhTransform(cache_size=1), AffineTransform(0.0, 2.0)]
)
value = torch.tensor([0.5, -1.5])
print(squashed.log_prob(value), squashed.support, squashed.batch_shape, squashed.event_shape)
print(Independent(squashed, 1).log_prob(value), Independent(squashed, 1))
x = squashed.rsample((5,))
print(x.shape, bool((x.abs() <= 2).all()), torch.isfinite(squashed.log_prob(x)).all())
print(
    actor(torch.tensor([[0.5, 0.5]]), deterministic=True)[0].shape,
    {k: v.shape for k, v in actor.state_dict().items() if "weight" not in k},
)
