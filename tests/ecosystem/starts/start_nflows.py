"""A masked autoregressive flow."""

from made import data, fill, show, train
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import ReversePermutation

steps = [t for _ in range(2) for t in (ReversePermutation(3), MaskedAffineAutoregressiveTransform(3, 8))]
flow = fill(Flow(CompositeTransform(steps), StandardNormal([3])))
x = data(16, 3)
show("density", flow.log_prob(x))
show("losses", train(flow.parameters(), lambda: -flow.log_prob(x).mean()))
z, determinant = flow._transform(x)
show("noise", z)
show("back", flow._transform.inverse(z)[0])
