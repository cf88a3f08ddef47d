"""Policy gradients: REINFORCE on a cart and pole written out here, then an actor-critic with a Gaussian policy."""

import argparse
import math
from collections import deque, namedtuple
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical, Normal, kl_divergence

parser = argparse.ArgumentParser(description="REINFORCE")
parser.add_argument("--gamma", type=float, default=0.99, metavar="G")
parser.add_argument("--seed", type=int, default=543)
parser.add_argument("--episodes", type=int, default=120)
args = parser.parse_args()


class CartPole:
    gravity, masscart, masspole, length, force_mag, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, size=4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, x_dot, theta, theta_dot = self.state
        force = self.force_mag if action == 1 else -self.force_mag
        total = self.masscart + self.masspole
        temp = (force + self.masspole * self.length * theta_dot**2 * math.sin(theta)) / total
        swing = self.gravity * math.sin(theta) - math.cos(theta) * temp
        theta_acc = swing / (self.length * (4.0 / 3.0 - self.masspole * math.cos(theta) ** 2 / total))
        x_acc = temp - self.masspole * self.length * theta_acc * math.cos(theta) / total
        change = np.array([x_dot, x_acc, theta_dot, theta_acc])
        self.state = self.state + self.tau * change
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state.astype(np.float32), 1.0, bool(done), {}


env = CartPole(args.seed)
torch.manual_seed(args.seed)


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 64)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(64, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = self.affine1(x)
        x = self.dropout(x)
        x = F.relu(x)
        action_scores = self.affine2(x)
        return F.softmax(action_scores, dim=1)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)
    probs = policy(state)
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + args.gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


lengths = []
for i_episode in range(args.episodes):
    state = env.reset()
    for t in count(1):
        state, reward, done, _ = env.step(select_action(state))
        policy.rewards.append(reward)
        if done or t == 150:
            break
    finish_episode()
    lengths.append(t)
print("balances longer", np.mean(lengths[-20:]) > 1.4 * np.mean(lengths[:20]))
probs = policy(torch.zeros(1, 4))
print(probs.shape, torch.allclose(probs.sum(), torch.tensor(1.0)))
m = Categorical(torch.tensor([[0.1, 0.2, 0.7]]))
print(
    m,
    m.entropy(),
    m.log_prob(torch.tensor([2])),
    m.mean,
    m.sample((2,)).shape,
    m.enumerate_support().tolist(),
)

SavedAction = namedtuple("SavedAction", ["log_prob", "value", "entropy"])


class ActorCritic(nn.Module):
    """Where to go on a line, to reach 0: the mean and deviation of a step, and what a place is worth."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.mean = nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(1))
        self.value_head = nn.Linear(32, 1)

    def forward(self, x):
        x = self.body(x)
        return Normal(self.mean(x), self.log_std.exp().expand(len(x), 1)), self.value_head(x)


model = ActorCritic()
optimizer = optim.Adam(model.parameters(), lr=0.02)
history = []
for iteration in range(60):
    places = torch.rand(64, 1) * 4 - 2
    policy_dist, state_value = model(places)
    action = policy_dist.sample()
    saved = SavedAction(policy_dist.log_prob(action), state_value, policy_dist.entropy())
    reward = -(places + action).pow(2)
    advantage = reward - saved.value.detach()
    loss = (
        -(saved.log_prob * advantage).mean()
        + F.smooth_l1_loss(saved.value, reward)
        - 0.001 * saved.entropy.mean()
    )
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    history.append(reward.mean().item())
print("rewarded more", np.mean(history[-10:]) > np.mean(history[:10]), "less noise", model.log_std.item() < 0)
old = Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
new = Normal(torch.tensor([0.5, 1.0]), torch.tensor([1.0, 1.0]))
print(kl_divergence(old, new), new, new.cdf(torch.tensor(1.0)), new.icdf(torch.tensor(0.25)))
ratio = (new.log_prob(torch.ones(2)) - old.log_prob(torch.ones(2))).exp()
surrogate = torch.min(ratio * 2, torch.clamp(ratio, 0.8, 1.2) * 2)
print(ratio, surrogate)
try:
    Normal(torch.zeros(2), -torch.ones(2))
except ValueError as error:
    print(error)
