"""A buffer of transitions and networks of policies."""

from made import data, fill, show
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net

buffer = ReplayBuffer(size=10)
for k in range(6):
    buffer.add(Batch(obs=k, act=k, rew=float(k), terminated=k == 5, truncated=False, obs_next=k + 1, info={}))
show("rewards", buffer.rew[:6])
network = fill(Net(state_shape=4, action_shape=2, hidden_sizes=[8]))
show("network", network(data(3, 4))[0])
batch = Batch(a=data(2, 2), b={"c": data(2)})
show("stacked", Batch.stack([batch, batch]).a)
