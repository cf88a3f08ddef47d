"""Proximal policy optimisation on two small worlds: advantages by GAE, clipped ratios, categorical and normal policies."""

from collections import defaultdict, namedtuple

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    kl_divergence,
)
from torch.distributions.transforms import AffineTransform, TanhTransform

Transition = namedtuple("Transition", "state action log_prob reward done value")
rng = np.random.default_rng(4)


class Corridor:
    """Five places in a row; the right end pays."""

    n_actions = 2

    def reset(self):
        self.at, self.t = 2, 0
        return self._seen()

    def _seen(self):
        return np.eye(5, dtype=np.float32)[self.at]

    def step(self, action):
        self.at = int(np.clip(self.at + (1 if action else -1), 0, 4))
        self.t += 1
        return self._seen(), float(self.at == 4) - 0.1, self.at == 4 or self.t >= 10


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    with torch.no_grad():
        q, r = np.linalg.qr(rng.standard_normal((max(layer.weight.shape), min(layer.weight.shape))))
        q = q if layer.weight.shape[0] >= layer.weight.shape[1] else q.T
        layer.weight.copy_(torch.as_tensor(q * std, dtype=torch.float32))
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(inputs, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(inputs, 16)), nn.Tanh(), layer_init(nn.Linear(16, actions), std=0.01)
        )

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            u = torch.as_tensor(rng.random(x.shape[:-1]), dtype=torch.float32)
            action = (u.unsqueeze(-1) > probs.probs.cumsum(-1)[..., :-1]).sum(-1)
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).squeeze(-1)


def gae(rewards, values, dones, last, gamma=0.95, lam=0.9):
    advantages = torch.zeros_like(rewards)
    running = 0.0
    for t in reversed(range(len(rewards))):
        following = last if t + 1 == len(rewards) else values[t + 1]
        alive = 1.0 - dones[t].float()
        delta = rewards[t] + gamma * following * alive - values[t]
        advantages[t] = running = delta + gamma * lam * alive * running
    return advantages, advantages + values


env = Corridor()
agent = Agent(5, env.n_actions)
optimizer = torch.optim.Adam(agent.parameters(), lr=2e-2, eps=1e-5)
returns = []
log = defaultdict(list)
for update in range(8):
    frac = 1.0 - update / 8
    optimizer.param_groups[0]["lr"] = frac * 2e-2
    memory, state, total = [], env.reset(), 0.0
    for _ in range(64):
        with torch.no_grad():
            action, log_prob, _, value = agent.get_action_and_value(torch.from_numpy(state))
        following, reward, done = env.step(action.item())
        memory.append(Transition(torch.from_numpy(state), action, log_prob, reward, done, value))
        total += reward
        state = env.reset() if done else following
    returns.append(total)
    batch = Transition(*zip(*memory))
    states, actions = torch.stack(batch.state), torch.stack(batch.action)
    old, values = torch.stack(batch.log_prob), torch.stack(batch.value)
    with torch.no_grad():
        last = agent.critic(torch.from_numpy(state)).squeeze()
        advantages, targets = gae(torch.tensor(batch.reward), values, torch.tensor(batch.done), last)
    order = np.arange(64)
    for epoch in range(4):
        rng.shuffle(order)
        for at in np.split(order, 4):
            at = torch.as_tensor(at)
            _, new, entropy, value = agent.get_action_and_value(states[at], actions[at])
            ratio = (new - old[at]).exp()
            adv = advantages[at]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            surrogate = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            clipped = values[at] + torch.clamp(value - values[at], -0.2, 0.2)
            v_loss = 0.5 * torch.max((value - targets[at]) ** 2, (clipped - targets[at]) ** 2).mean()
            loss = -surrogate + 0.5 * v_loss - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        with torch.no_grad():
            log["kl"].append(((ratio - 1) - ratio.log()).mean().item())
            log["clipped"].append(((ratio - 1.0).abs() > 0.2).float().mean().item())
    y, pred = targets.numpy(), values.numpy()
    if update < 2:
        print(
            f"update {update} return {total:.1f} v {v_loss.item():.4f} kl {log['kl'][-1]:.4f} entropy {entropy.mean().item():.4f}"
            f" explained {1 - np.var(y - pred) / np.var(y):.3f}"
        )
print("better", returns[-1] > returns[0], "goes right", agent.actor(torch.eye(5)).argmax(1)[:4].tolist())

# Continuous actions: densities by hand and by the library.
mean, log_std = (
    torch.tensor([[0.3, -0.2], [0.1, 0.5]], requires_grad=True),
    torch.full((2,), -0.5, requires_grad=True),
)
policy = Independent(Normal(mean, log_std.exp()), 1)
action = torch.tensor([[0.1, 0.2], [0.0, 1.0]])
print(policy.batch_shape, policy.event_shape, [round(v, 4) for v in policy.log_prob(action).tolist()])
print([round(v, 4) for v in policy.entropy().tolist()])
full = MultivariateNormal(mean, torch.diag(log_std.exp() ** 2))
print("as a full one", torch.allclose(full.log_prob(action), policy.log_prob(action)))
squashed = TransformedDistribution(policy, [TanhTransform(cache_size=1), AffineTransform(0.0, 2.0)])
lp = squashed.log_prob(torch.tensor([[0.5, -1.0], [1.5, 0.25]]))
lp.sum().backward()
print([round(v, 4) for v in lp.tolist()], [[round(v, 4) for v in r] for r in mean.grad.tolist()])
moved = Independent(Normal(mean.detach() + 0.1, (log_std.detach() + 0.1).exp()), 1)
print("kl", [round(v, 4) for v in kl_divergence(policy, moved).tolist()])
mask = torch.tensor([[True, False, True], [True, True, True]])
logits = torch.tensor([[0.5, 2.0, 1.0], [0.1, 0.2, 0.3]]).masked_fill(~mask, -1e8)
masked = Categorical(logits=logits)
print([round(v, 4) for v in masked.entropy().tolist()], masked.probs.argmax(-1).tolist(), masked)
coin = Bernoulli(logits=torch.tensor([0.0, 1.0]))
print(
    [round(v, 4) for v in coin.log_prob(torch.tensor([1.0, 0.0])).tolist()],
    coin.mode.tolist(),
    coin.variance[1].item() < 0.25,
)
try:
    Normal(torch.tensor(0.0), torch.tensor(-1.0))
except ValueError as error:
    print("refused:", str(error).splitlines()[0][:120])
try:
    masked.log_prob(torch.tensor([3, 0]))
except ValueError as error:
    print("refused:", str(error).splitlines()[0][:120])
samples = squashed.rsample((200,))
print(tuple(samples.shape), bool((samples.abs() < 2).all()), samples.requires_grad)
