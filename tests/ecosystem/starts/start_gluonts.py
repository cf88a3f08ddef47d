"""A forecaster's network and the loss of a distribution."""

from gluonts.torch.distributions import NegativeBinomialOutput, StudentTOutput
from gluonts.torch.model.deepar.module import DeepARModel
from gluonts.torch.model.simple_feedforward.module import SimpleFeedForwardModel
from made import data, fill, show, uniform

output = StudentTOutput()
projection = fill(output.get_args_proj(4))
distribution = output.distribution(projection(data(3, 4)))
show("loss", -distribution.log_prob(data(3)))
show(
    "counts",
    NegativeBinomialOutput().distribution(NegativeBinomialOutput().domain_map(data(3), data(3, seed=1))).mean,
)
model = fill(SimpleFeedForwardModel(prediction_length=4, context_length=8))
arguments, location, scale = model(uniform(2, 8))
show("parameters", list(arguments))
deepar = DeepARModel(freq="D", context_length=4, prediction_length=2, num_feat_dynamic_real=1, num_feat_static_real=1,
                     num_feat_static_cat=1, cardinality=[2], hidden_size=8, lags_seq=[1, 2], dropout_rate=0.0)  # fmt: skip
show("cells", sum(p.numel() for p in deepar.parameters()))
