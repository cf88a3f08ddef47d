"""Policies of reinforcement learning: an update of PPO, a learned DQN."""

import gymnasium as gym
import numpy as np
import torch
from made import data, fill, show
from stable_baselines3 import A2C, DQN, PPO

environment = gym.make("CartPole-v1")
for kind in (PPO, A2C, DQN):
    model = kind(
        "MlpPolicy",
        environment,
        seed=0,
        device="cpu",
        **({"n_steps": 32} if kind is not DQN else {"learning_starts": 16}),
    )
    fill(model.policy)
    observations = np.random.RandomState(0).randn(5, 4).astype(np.float32)
    show(kind.__name__, model.predict(observations, deterministic=True)[0])
    if kind is not DQN:
        values, density, entropy = model.policy.evaluate_actions(data(5, 4), torch.tensor([0, 1, 1, 0, 1]))
        show("evaluated", [values, density, entropy])
    model.learn(64)
    model.save("model.zip")
    show("steps", kind.load("model.zip", device="cpu").num_timesteps)
