"""Variational inference of a model with exact expectations."""

import pyro
import pyro.distributions as dist
import torch
from made import data, show
from pyro import poutine
from pyro.infer import SVI, Predictive, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal

points = data(20) + 2


def model():
    mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("points", len(points)):
        pyro.sample("x", dist.Normal(mean, scale), obs=points)


guide = AutoDelta(
    model,
    init_loc_fn=pyro.infer.autoguide.init_to_median(num_samples=1) if False else lambda site: torch.ones(()),
)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), pyro.infer.Trace_ELBO())
show("losses", [svi.step() for _ in range(10)])
show("median", guide.median())
trace = poutine.trace(
    poutine.condition(model, data={"mean": torch.tensor(1.0), "scale": torch.tensor(2.0)})
).get_trace()
show("density", trace.log_prob_sum())


@config_enumerate
def mixture():
    weights = torch.tensor([0.3, 0.7])
    with pyro.plate("points", len(points)):
        k = pyro.sample("k", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(torch.tensor([0.0, 2.0])[k], 1.0), obs=points)


show("enumerated", TraceEnum_ELBO(max_plate_nesting=1).loss(mixture, lambda: None))
normal = AutoNormal(model)
svi = SVI(model, normal, pyro.optim.Adam({"lr": 0.05}), pyro.infer.Trace_ELBO())
for _ in range(3):
    svi.step()
show("trained", len(list(normal.parameters())))
show("shape", list(Predictive(model, guide=normal, num_samples=4)()["x"].shape))
