"""An invertible network of coupling blocks."""

import FrEIA.framework as framework
import FrEIA.modules as modules
import torch
from made import data, fill, show


def subnet(c_in, c_out):
    return torch.nn.Sequential(torch.nn.Linear(c_in, 8), torch.nn.ReLU(), torch.nn.Linear(8, c_out))


network = framework.SequenceINN(4)
for _ in range(3):
    network.append(modules.AllInOneBlock, subnet_constructor=subnet, permute_soft=False)
fill(network)
for block in network.module_list:
    block.w_perm.data = torch.eye(4)[[1, 2, 3, 0]]
    block.w_perm_inv.data = block.w_perm.data.T.contiguous()
x = data(5, 4)
z, log_jacobian = network(x)
show("z", z)
show("log jacobian", log_jacobian)
show("back", network(z, rev=True)[0] - x > 1e-3)
(0.5 * (z**2).sum(1) - log_jacobian).mean().backward()
show("gradient", next(network.parameters()).grad)
