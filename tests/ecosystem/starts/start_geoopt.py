"""Optimisation on manifolds."""

import geoopt
import torch
from made import data, show

ball = geoopt.PoincareBall(c=1.0)
x, y = (ball.projx(0.4 * data(5, 3, seed=k)) for k in (0, 1))
show("distance", ball.dist(x, y))
show("sum", ball.mobius_add(x, y))
show("exponential", ball.expmap(x, data(5, 3, seed=2)))
point = geoopt.ManifoldParameter(torch.linalg.qr(data(4, 2).double())[0], manifold=geoopt.Stiefel())
target, optimizer = data(4, 2, seed=3).double(), geoopt.optim.RiemannianAdam([point], lr=0.05)
for _ in range(4):
    optimizer.zero_grad()
    loss = ((point - target) ** 2).sum()
    loss.backward()
    optimizer.step()
    show("loss", loss)
show("orthogonal", point.T @ point)
