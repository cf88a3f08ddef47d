"""Deep Q-learning on a small maze: a replay buffer, a target network that follows softly, double Q, Huber's loss."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

random.seed(7)
torch.manual_seed(7)
MAZE = ["S..#", ".#..", "...#", "#..G"]
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


def step(place, action):
    dy, dx = [(-1, 0), (1, 0), (0, -1), (0, 1)][action]
    y, x = min(max(place[0] + dy, 0), 3), min(max(place[1] + dx, 0), 3)
    if MAZE[y][x] == "#":
        y, x = place
    done = MAZE[y][x] == "G"
    return (y, x), 1.0 if done else -0.05, done


def observe(place):
    return F.one_hot(torch.tensor([place[0] * 4 + place[1]]), num_classes=16).float()


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 32)
        self.value = nn.Linear(32, 1)
        self.advantage = nn.Linear(32, n_actions)
        generator = torch.linspace(-1, 1, 32 * n_observations)
        with torch.no_grad():
            self.layer1.weight.copy_(torch.sin(97 * generator).view(32, n_observations) * 0.3)
            self.layer1.bias.zero_()
            for head in (self.value, self.advantage):
                nn.init.constant_(head.bias, 0.0)
                head.weight.copy_(
                    torch.cos(torch.arange(head.weight.numel()) * 1.7).view_as(head.weight) * 0.2
                )

    def forward(self, x):
        x = F.relu(self.layer1(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


BATCH_SIZE, GAMMA, TAU, LR = 32, 0.95, 0.05, 5e-3
policy_net, target_net = DQN(16, 4), DQN(16, 4)
target_net.load_state_dict(policy_net.state_dict())
target_net.requires_grad_(False)
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(500)
steps_done = 0


def select_action(state):
    global steps_done
    steps_done += 1
    if random.random() > max(0.1, 0.9 - steps_done / 400):
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(4)]], dtype=torch.long)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = (
        torch.cat(batch.state),
        torch.cat(batch.action),
        torch.cat(batch.reward),
    )
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        best = policy_net(non_final_next_states).argmax(1, keepdim=True)
        next_state_values[non_final_mask] = target_net(non_final_next_states).gather(1, best).squeeze(1)
    expected = (next_state_values * GAMMA) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    for param in policy_net.parameters():
        param.grad.data.clamp_(-1, 1)
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss


durations = []
for episode in range(60):
    place, done = (0, 0), False
    for t in range(60):
        state = observe(place)
        action = select_action(state)
        place, reward, done = step(place, action.item())
        memory.push(state, action, None if done else observe(place), torch.tensor([reward]))
        loss = optimize_model()
        target_net_state_dict = target_net.state_dict()
        policy_net_state_dict = policy_net.state_dict()
        for key in policy_net_state_dict:
            target_net_state_dict[key] = policy_net_state_dict[key] * TAU + target_net_state_dict[key] * (
                1 - TAU
            )
        target_net.load_state_dict(target_net_state_dict)
        if done:
            break
    durations.append(t + 1)
print("first episodes", durations[:3])
print("shorter", sum(durations[-10:]) < sum(durations[:10]) / 2, "shortest", min(durations))
greedy = policy_net(torch.eye(16)).argmax(dim=1).view(4, 4)
place, path = (0, 0), []
for _ in range(12):
    place, _, done = step(place, greedy[place].item())
    path.append(place)
    if done:
        break
print("arrives", done, "in", len(path))
print([tuple(p.shape) for p in policy_net.parameters()], next(target_net.parameters()).requires_grad)
