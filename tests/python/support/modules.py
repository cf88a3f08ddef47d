"""Modules as test cases, written once for Facula and for PyTorch: how each is made, and what it is called
with.

Importable with either library; the arguments and parameters are functions of their place alone.
"""

from __future__ import annotations

from math import prod

# constructor: arguments. A list is a float tensor of these sizes; ("int", sizes, n) integers below n;
# ("sign", sizes) -1 and 1; ("unit", sizes) between 0 and 1; ("log", sizes) log-probabilities.
CASES: list[tuple[str, list]] = [
    ("Identity(54, unused=1)", [[2, 3]]),
    ("Linear(3, 2)", [[4, 3]]),
    ("Linear(3, 2, bias=False)", [[2, 4, 3]]),
    ("Bilinear(2, 3, 4)", [[5, 2], [5, 3]]),
    ("Bilinear(2, 3, 4, bias=False)", [[5, 1, 2], [5, 1, 3]]),
    ("Flatten()", [[2, 3, 4]]),
    ("Flatten(0, 1)", [[2, 3, 4]]),
    ("Unflatten(1, (2, 3))", [[2, 6]]),
    ("Conv1d(4, 6, 3)", [[2, 4, 8]]),
    ("Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2)", [[2, 4, 9]]),
    ("Conv1d(2, 3, 4, padding='same')", [[2, 2, 7]]),
    ("Conv2d(2, 3, 3)", [[2, 2, 5, 6]]),
    ("Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0), groups=2, bias=False)", [[2, 2, 5, 6]]),
    ("Conv2d(2, 3, (3, 4), padding='same')", [[1, 2, 5, 6]]),
    ("Conv2d(2, 3, 3, padding='valid')", [[2, 5, 6]]),
    ("Conv2d(2, 3, 3, padding=1, padding_mode='reflect')", [[1, 2, 5, 6]]),
    ("Conv2d(2, 3, 3, padding=(2, 1), padding_mode='circular', dilation=2)", [[1, 2, 5, 6]]),
    ("Conv2d(2, 3, (3, 4), padding='same', padding_mode='replicate')", [[1, 2, 5, 6]]),
    ("ConvTranspose1d(4, 6, 3, stride=2, groups=2)", [[2, 4, 8]]),
    ("ConvTranspose2d(2, 3, 3)", [[2, 2, 5, 6]]),
    ("ConvTranspose2d(2, 3, (3, 2), stride=2, padding=1, output_padding=(1, 0), bias=False)", [[2, 5, 6]]),
    ("ConvTranspose2d(2, 3, 3, output_padding=1, dilation=2)", [[1, 2, 5, 6]]),
    ("Conv1d(2, 3, 3, padding=2, padding_mode='circular')", [[1, 2, 5]]),
    ("Conv3d(2, 4, 2)", [[2, 2, 3, 4, 3]]),
    ("Conv3d(2, 4, (2, 3, 2), stride=(1, 2, 1), padding=(1, 0, 1), groups=2, bias=False)", [[2, 3, 4, 5]]),
    ("Conv3d(2, 3, 2, padding='same', dilation=2)", [[1, 2, 4, 3, 4]]),
    ("Conv3d(1, 2, 2, padding=1, padding_mode='replicate')", [[1, 1, 2, 3, 2]]),
    ("ConvTranspose3d(2, 3, 2)", [[2, 2, 3, 2, 3]]),
    ("ConvTranspose3d(2, 4, (2, 3, 2), stride=2, padding=1, output_padding=1, groups=2)", [[2, 3, 2, 2]]),
    ("BatchNorm1d(3)", [[4, 3]]),
    ("BatchNorm1d(3, momentum=None)", [[4, 3, 2]]),
    ("BatchNorm2d(3, affine=False)", [[2, 3, 2, 2]]),
    ("BatchNorm2d(3, eps=0.1, momentum=0.5, track_running_stats=False)", [[2, 3, 2, 2]]),
    ("BatchNorm3d(2)", [[2, 2, 2, 2, 1]]),
    ("BatchNorm1d(3, bias=False)", [[4, 3]]),
    ("InstanceNorm1d(3)", [[2, 3, 4]]),
    ("InstanceNorm1d(3, affine=True)", [[3, 4]]),
    ("InstanceNorm2d(2, affine=True, track_running_stats=True)", [[2, 2, 3, 2]]),
    ("InstanceNorm3d(2)", [[1, 2, 2, 2, 2]]),
    ("LayerNorm(4)", [[2, 3, 4]]),
    ("LayerNorm((3, 4), eps=0.01, bias=False)", [[2, 3, 4]]),
    ("LayerNorm(4, elementwise_affine=False)", [[2, 4]]),
    ("RMSNorm(4)", [[2, 3, 4]]),
    ("RMSNorm((3, 4), eps=0.1, elementwise_affine=False)", [[2, 3, 4]]),
    ("TransformerDecoderLayer(8, 2, 16, 0.0)", [[5, 3, 8], [4, 3, 8]]),
    (
        "TransformerDecoderLayer(8, 2, 16, 0.0, 'gelu', norm_first=True, batch_first=True)",
        [[3, 5, 8], [3, 4, 8]],
    ),
    (
        "TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, bias=False), 2, nn.LayerNorm(8))",
        [[5, 3, 8], [4, 3, 8]],
    ),
    ("Transformer(8, 2, 1, 2, 16, 0.0)", [[5, 3, 8], [4, 3, 8]]),
    ("Transformer(8, 2, 1, 1, 16, 0.0, 'gelu', batch_first=True, norm_first=True)", [[3, 5, 8], [3, 4, 8]]),
    ("AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12])", [[7, 8], ("int", [7], 20)]),
    ("AdaptiveLogSoftmaxWithLoss(8, 20, [5], div_value=2.0, head_bias=True)", [[8], ("int", [], 20)]),
    ("GroupNorm(2, 4)", [[2, 4, 3]]),
    ("GroupNorm(4, 4, affine=False)", [[2, 4, 3, 2]]),
    ("GroupNorm(1, 4, eps=0.1, bias=False)", [[2, 4]]),
    ("LocalResponseNorm(2)", [[2, 5, 3]]),
    ("LocalResponseNorm(3, alpha=0.5, beta=0.5, k=2.0)", [[2, 5, 3, 2]]),
    ("Embedding(5, 3)", [("int", [2, 4], 5)]),
    ("Embedding(5, 3, padding_idx=-1)", [("int", [2, 4], 5)]),
    ("Embedding(5, 3, max_norm=1.0)", [("int", [2, 4], 3)]),
    ("Embedding(5, 3, max_norm=1.0, norm_type=1.0)", [("int", [3], 5)]),
    ("EmbeddingBag(5, 3)", [("int", [2, 4], 5)]),
    ("EmbeddingBag(5, 3, mode='sum', padding_idx=2)", [("int", [2, 4], 5)]),
    ("EmbeddingBag(5, 3, mode='max', padding_idx=-1)", [("int", [3, 4], 5)]),
    ("EmbeddingBag(5, 3, max_norm=1.0, norm_type=1.0)", [("int", [2, 4], 5)]),
    ("RNN(3, 4)", [[5, 2, 3]]),
    ("RNN(3, 4, 2, 'relu', bias=False, batch_first=True)", [[2, 5, 3]]),
    ("RNN(3, 4, bidirectional=True)", [[5, 3]]),
    ("LSTM(3, 4)", [[5, 2, 3]]),
    ("LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)", [[2, 5, 3]]),
    ("LSTM(3, 4, proj_size=2, bias=False, bidirectional=True)", [[5, 3]]),
    ("LSTM(3, 4, 2, dropout=0.5, proj_size=1)", []),
    ("GRU(3, 4)", [[5, 2, 3], [1, 2, 4]]),
    ("GRU(3, 4, 3, bidirectional=True, batch_first=True)", [[2, 5, 3]]),
    ("RNNCell(3, 4)", [[2, 3]]),
    ("RNNCell(3, 4, bias=False, nonlinearity='relu')", [[3], [4]]),
    ("LSTMCell(3, 4)", [[2, 3]]),
    ("GRUCell(3, 4)", [[2, 3], [2, 4]]),
    ("MaxPool1d(2)", [[2, 3, 5]]),
    ("MaxPool1d(3, stride=2, padding=1, return_indices=True)", [[3, 6]]),
    ("MaxPool2d((2, 3), stride=1)", [[2, 4, 5]]),
    ("MaxPool2d(3, 2, 1, ceil_mode=True)", [[1, 2, 6, 7]]),
    ("AvgPool1d(3, stride=2, padding=1, count_include_pad=False)", [[2, 3, 6]]),
    ("AvgPool2d(2)", [[2, 4, 5]]),
    ("AvgPool2d((3, 2), stride=(2, 1), padding=1)", [[1, 2, 4, 5]]),
    ("MaxPool3d(2)", [[2, 3, 4, 5]]),
    ("MaxPool3d((2, 3, 2), 1, (1, 1, 0), (2, 1, 1), return_indices=True)", [[1, 2, 4, 5, 4]]),
    ("MaxPool3d(3, 2, 1, ceil_mode=True)", [[1, 1, 4, 6, 5]]),
    ("AvgPool3d(2)", [[2, 4, 5, 4]]),
    ("AvgPool3d((3, 2, 2), stride=(2, 1, 2), padding=1, count_include_pad=False)", [[1, 2, 4, 3, 4]]),
    ("AvgPool3d(3, 2, 1, ceil_mode=True, divisor_override=5)", [[1, 1, 4, 6, 5]]),
    ("LPPool3d(2, 2)", [[1, 2, 4, 5, 4]]),
    ("LPPool1d(2, 3)", [[2, 2, 7]]),
    ("LPPool2d(2, (2, 3), stride=1)", [[1, 2, 4, 5]]),
    ("AdaptiveAvgPool1d(3)", [[2, 2, 7]]),
    ("AdaptiveAvgPool2d(1)", [[2, 3, 4, 4]]),
    ("AdaptiveAvgPool2d((3, None))", [[2, 7, 5]]),
    ("AdaptiveMaxPool2d((2, 3))", [[2, 2, 5, 4]]),
    ("AdaptiveAvgPool3d((2, None, 3))", [[2, 5, 3, 7]]),
    ("AdaptiveAvgPool3d(1)", [[1, 2, 5, 3, 4]]),
    ("AdaptiveMaxPool3d((2, 3, 1), return_indices=True)", [[1, 2, 5, 3, 4]]),
    ("Unfold((2, 3))", [[2, 2, 4, 5]]),
    ("Unfold(2, dilation=2, padding=1, stride=(1, 2))", [[2, 4, 5]]),
    ("Fold((4, 5), 2)", [[2, 8, 12]]),
    ("Fold(5, (2, 3), dilation=(2, 1), padding=1, stride=2)", [[12, 9]]),
    ("Upsample(scale_factor=2)", [[1, 2, 3, 4]]),
    ("Upsample(size=(5, 3))", [[1, 2, 3, 4]]),
    ("Upsample(7, mode='nearest-exact')", [[1, 2, 3]]),
    ("Upsample(scale_factor=1.7, mode='linear')", [[1, 2, 4]]),
    ("Upsample(scale_factor=(2, 1.5), mode='bilinear')", [[1, 2, 3, 4]]),
    ("Upsample(size=(2, 6), mode='bilinear', align_corners=True)", [[1, 1, 3, 4]]),
    ("Upsample(scale_factor=2.3, mode='bilinear', recompute_scale_factor=True)", [[1, 1, 3, 4]]),
    ("Upsample(size=(5, 7), mode='bicubic')", [[1, 1, 3, 4]]),
    ("Upsample(size=(2, 3), mode='bicubic', align_corners=True)", [[1, 1, 3, 4]]),
    ("Upsample(size=(3, 2, 5), mode='trilinear')", [[1, 1, 2, 3, 4]]),
    ("Upsample(size=(2, 3), mode='area')", [[1, 1, 5, 4]]),
    ("UpsamplingNearest2d(scale_factor=3)", [[1, 1, 2, 3]]),
    ("UpsamplingBilinear2d(size=(3, 5))", [[1, 1, 2, 3]]),
    ("ConstantPad1d(2, 3.5)", [[2, 3]]),
    ("ConstantPad2d((1, 0, -1, 2), 0.5)", [[1, 3, 4]]),
    ("ZeroPad2d((1, 1, 2, 0))", [[1, 2, 2, 2]]),
    ("ReflectionPad1d((2, 1))", [[1, 2, 4]]),
    ("ReflectionPad2d(1)", [[2, 3, 3]]),
    ("ReplicationPad1d(3)", [[2, 2]]),
    ("ReplicationPad2d((1, 2, 0, 3))", [[1, 1, 3, 2]]),
    ("ReplicationPad3d(1)", [[1, 1, 2, 2, 2]]),
    ("CircularPad2d((1, 2, 0, 1))", [[1, 1, 3, 2]]),
    ("PixelShuffle(2)", [[2, 8, 3, 2]]),
    ("PixelUnshuffle(2)", [[2, 3, 4, 6]]),
    ("ChannelShuffle(2)", [[2, 6, 3]]),
    ("ReLU()", [[3, 4]]),
    ("ReLU(inplace=True)", []),
    ("ReLU6()", [[3, 4]]),
    ("Hardtanh(-0.5, 0.7)", [[3, 4]]),
    ("LeakyReLU(0.2)", [[3, 4]]),
    ("LeakyReLU(0.2, True)", []),
    ("ELU(0.5)", [[3, 4]]),
    ("CELU(0.5)", [[3, 4]]),
    ("SELU()", [[3, 4]]),
    ("SiLU()", [[3, 4]]),
    ("Mish()", [[3, 4]]),
    ("Hardswish()", [[3, 4]]),
    ("Hardsigmoid()", [[3, 4]]),
    ("PReLU()", [[3, 4]]),
    ("PReLU(3)", [[2, 3, 4]]),
    ("Threshold(0.1, 2.0)", [[3, 4]]),
    ("GELU()", [[3, 4]]),
    ("GELU('tanh')", [[3, 4]]),
    ("Softplus()", [[3, 4]]),
    ("Softplus(2.0, 1.0)", [[3, 4]]),
    ("Softshrink()", [[3, 4]]),
    ("Hardshrink(0.3)", [[3, 4]]),
    ("GLU()", [[3, 4]]),
    ("GLU(0)", [[4, 3]]),
    ("Tanh()", [[3, 4]]),
    ("Sigmoid()", [[3, 4]]),
    ("LogSigmoid()", [[3, 4]]),
    ("Softsign()", [[3, 4]]),
    ("Tanhshrink()", [[3, 4]]),
    ("Softmax(dim=1)", [[3, 4]]),
    ("Softmin(dim=0)", [[3, 4]]),
    ("LogSoftmax(-1)", [[3, 4]]),
    ("Softmax2d()", [[2, 3, 2, 2]]),
    ("RReLU(0.1, 0.3)", []),
    ("Dropout(0.2)", []),
    ("Dropout2d()", []),
    ("AlphaDropout(0.1)", []),
    ("MSELoss()", [[3, 4], [3, 4]]),
    ("L1Loss(reduction='sum')", [[3, 4], [3, 4]]),
    ("SmoothL1Loss(beta=0.5)", [[3, 4], [3, 4]]),
    ("HuberLoss(delta=0.5, reduction='none')", [[3, 4], [3, 4]]),
    ("KLDivLoss(reduction='batchmean')", [("log", [3, 4]), ("unit", [3, 4])]),
    ("KLDivLoss(reduction='sum', log_target=True)", [("log", [3, 4]), ("log", [3, 4])]),
    ("PoissonNLLLoss(full=True)", [[3, 4], ("int", [3, 4], 5)]),
    ("PoissonNLLLoss(log_input=False, reduction='sum')", [("unit", [3, 4]), ("int", [3, 4], 5)]),
    ("GaussianNLLLoss()", [[3, 4], [3, 4], ("unit", [3, 4])]),
    ("GaussianNLLLoss(full=True, reduction='sum')", [[3, 4], [3, 4], ("unit", [3, 1])]),
    ("NLLLoss()", [("log", [3, 4]), ("int", [3], 4)]),
    ("NLLLoss(ignore_index=1, reduction='none')", [("log", [2, 4, 3]), ("int", [2, 3], 4)]),
    ("CrossEntropyLoss()", [[3, 4], ("int", [3], 4)]),
    ("CrossEntropyLoss(label_smoothing=0.1, ignore_index=2)", [[2, 4, 3], ("int", [2, 3], 4)]),
    ("CrossEntropyLoss(reduction='sum')", [[3, 4], ("unit", [3, 4])]),
    ("BCELoss()", [("unit", [3, 4]), ("unit", [3, 4])]),
    ("BCEWithLogitsLoss(reduction='sum')", [[3, 4], ("unit", [3, 4])]),
    ("SoftMarginLoss()", [[3, 4], ("sign", [3, 4])]),
    ("MultiLabelSoftMarginLoss()", [[3, 4], ("unit", [3, 4])]),
    ("MultiMarginLoss()", [[3, 4], ("int", [3], 4)]),
    ("MultiMarginLoss(p=2, margin=0.5, reduction='none')", [[3, 4], ("int", [3], 4)]),
    ("MultiLabelMarginLoss()", [[2, 4], ("labels", [2, 4])]),
    ("HingeEmbeddingLoss()", [("unit", [3, 4]), ("sign", [3, 4])]),
    ("CosineEmbeddingLoss(margin=0.2)", [[3, 4], [3, 4], ("sign", [3])]),
    ("MarginRankingLoss(margin=0.3)", [[5], [5], ("sign", [5])]),
    ("TripletMarginLoss()", [[3, 4], [3, 4], [3, 4]]),
    ("TripletMarginLoss(p=1.0, swap=True, reduction='none')", [[3, 4], [3, 4], [3, 4]]),
    ("TripletMarginWithDistanceLoss(margin=0.5)", [[3, 4], [3, 4], [3, 4]]),
    ("PairwiseDistance(p=1.0, keepdim=True)", [[3, 4], [3, 4]]),
    ("CosineSimilarity(dim=0)", [[3, 4], [3, 4]]),
    ("Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))", [[2, 3]]),
    ("ModuleList([nn.Linear(2, 3) for _ in range(4)] + [nn.ReLU(), nn.ReLU()])", []),
    ("ModuleDict({'a': nn.Linear(2, 3), 'b': nn.ReLU()})", []),
    ("ParameterList([torch.ones(2, 3), nn.Parameter(torch.zeros(4), requires_grad=False)])", []),
    ("ParameterDict({'a': torch.ones(2, 3), 'b': 5})", []),
]


def spread(lib, sizes, start=0):
    """Numbers between -2 and 2, the same on every machine, no two equal."""
    n = prod(sizes)
    return (
        ((lib.arange(n) + start) * 7919 % 1009).to(lib.float64) / 250
        - 2
        + lib.arange(n).to(lib.float64) / 10000
    ).reshape(sizes)


def argument(lib, a, k):
    if isinstance(a, list):
        return spread(lib, a, 17 * k)
    kind, sizes = a[0], a[1]
    x = spread(lib, sizes, 17 * k)
    if kind == "int":
        return (lib.arange(prod(sizes)) * 7 % a[2]).reshape(sizes)
    if kind == "sign":
        return lib.where(x > 0, lib.ones_like(x), -lib.ones_like(x))
    if kind == "unit":
        return (x + 2.05) / 4.3
    if kind == "labels":
        return lib.tensor([[3, 0, -1, 1], [2, -1, 0, 3]])
    return lib.log_softmax(x, -1 if len(sizes) == 2 else 1)


def results(lib, constructor: str, arguments: list) -> dict:
    """What a module shows, holds and computes: lists of numbers, comparable between the libraries."""
    names = {"nn": lib.nn, "torch": lib}
    module = eval("nn." + constructor, names)
    out = {
        "repr": repr(module),
        "state": {k: list(v.shape) for k, v in module.state_dict().items() if hasattr(v, "shape")},
    }
    if not arguments:
        return out
    module = module.double()
    for k, p in enumerate(module.parameters()):
        p.data.copy_(spread(lib, list(p.shape), 31 * (k + 1)) * 0.5)
    args = [argument(lib, a, k) for k, a in enumerate(arguments)]
    for given, a in zip(arguments, args):
        if isinstance(given, list) or given[0] in ("unit", "log"):
            a.requires_grad_()
    y = module(*args)
    ys = flat(y)
    out["train"] = [[list(t.shape), numbers(t)] for t in ys]
    if ys[0].requires_grad:
        (ys[0] * spread(lib, list(ys[0].shape), 5)).sum().backward()
        out["grads"] = [None if a.grad is None else numbers(a.grad) for a in args]
        out["parameter grads"] = [None if p.grad is None else numbers(p.grad) for p in module.parameters()]
    out["buffers"] = [numbers(b) for b in module.buffers()]
    y = module.eval()(*[argument(lib, a, k) for k, a in enumerate(arguments)])
    out["eval"] = numbers(flat(y)[0])
    return out


def flat(y) -> list:
    return [t for part in y for t in flat(part)] if isinstance(y, (tuple, list)) else [y]


def numbers(t) -> list:
    return [round(x, 10) for x in t.detach().to(t.dtype).reshape([-1]).tolist()]
