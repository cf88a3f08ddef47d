"""A flow of coupling layers, trained on samples."""

import normflows as nf
from made import data, fill, show, train

layers = []
for _ in range(3):
    layers += [
        nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=False)),
        nf.flows.Permute(2, mode="swap"),
    ]
model = fill(nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2, trainable=False), layers))
x = data(16, 2)
show("density", model.log_prob(x))
show("losses", train(model.parameters(), lambda: model.forward_kld(x)))
show("forward", model.forward(x))
spline = fill(nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8))
show("spline", list(spline.inverse(0.5 * x)))
