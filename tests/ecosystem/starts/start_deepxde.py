"""A differential equation, solved by a small network."""

import contextlib
import io
import os

os.environ["DDE_BACKEND"] = "pytorch"
import deepxde as dde
import numpy as np
from made import fill, show


def equation(x, y):
    return dde.grad.hessian(y, x) + np.pi**2 * dde.backend.torch.sin(np.pi * x)


domain = dde.geometry.Interval(-1, 1)
boundary = dde.icbc.DirichletBC(domain, lambda x: 0, lambda x, on: on)
problem = dde.data.PDE(
    domain, equation, boundary, num_domain=16, num_boundary=2, train_distribution="uniform"
)
network = fill(dde.nn.FNN([1] + [10] * 2 + [1], "tanh", "Glorot uniform"))
model = dde.Model(problem, network)
with contextlib.redirect_stdout(io.StringIO()):  # it prints how long it took
    model.compile("adam", lr=0.001)
losses, state = model.train(iterations=20, display_every=10, verbose=0)
show("losses", np.array(losses.loss_train))
show("solution", model.predict(np.linspace(-1, 1, 7)[:, None].astype(np.float32)))
