"""What grad_fn is called: programs print tensors, and PyTorch's nodes have the names of its formulas."""

EXPRESSIONS = {
    "losses": """
        F.mse_loss(x, y)
        F.mse_loss(x, y, reduction="none")
        F.l1_loss(x, y)
        F.smooth_l1_loss(x, y)
        F.huber_loss(x, y)
        F.cross_entropy(x, tgt)
        F.cross_entropy(x, tgt, reduction="none")
        F.cross_entropy(x, y.detach())
        F.cross_entropy(x, tgt, label_smoothing=0.1)
        F.nll_loss(x, tgt)
        F.binary_cross_entropy(x, y.detach())
        F.binary_cross_entropy_with_logits(x, y.detach())
        F.kl_div(x, y)
        F.poisson_nll_loss(x, y.detach())
        F.gaussian_nll_loss(x, y.detach(), x)
        F.hinge_embedding_loss(x, y.detach())
        F.margin_ranking_loss(x, y, y.detach())
        F.triplet_margin_loss(x, y, x)
        F.cosine_embedding_loss(x, y, tgt)
        F.multi_margin_loss(x, tgt)
        F.multilabel_soft_margin_loss(x, y.detach())
        F.soft_margin_loss(x, y.detach())
        F.ctc_loss(x.log_softmax(1)[:, None], torch.tensor([[1]]), [3], [1])
        F.cross_entropy(x, tgt, reduction="sum")
        F.cross_entropy(im, torch.zeros(1, 6, 6).long())
        F.cross_entropy(seq, torch.zeros(1, 6).long())
        F.cross_entropy(seq, torch.zeros(1, 6).long(), reduction="none")
        F.cross_entropy(x, y.detach(), reduction="sum")
        F.nll_loss(im, torch.zeros(1, 6, 6).long())
        F.l1_loss(x, y, reduction="sum")
        F.l1_loss(x, y, reduction="none")
        F.kl_div(x, y, reduction="sum")
        F.kl_div(x, y, reduction="none")
        F.mse_loss(x, y, reduction="sum")
        F.poisson_nll_loss(x, y, reduction="sum")
        F.poisson_nll_loss(x, y, reduction="none")
        F.triplet_margin_loss(x, y, x, reduction="none")
        F.margin_ranking_loss(x, y, mask * 2.0 - 1, reduction="none")
        F.triplet_margin_with_distance_loss(x, y, y + 1)
    """,
    "layers": """
        F.softmax(x, 1)
        F.log_softmax(x, 1)
        F.relu(x)
        F.leaky_relu(x)
        F.elu(x)
        F.selu(x)
        F.celu(x)
        F.gelu(x)
        F.silu(x)
        F.mish(x)
        F.softplus(x)
        F.softsign(x)
        F.hardtanh(x)
        F.relu6(x)
        F.hardswish(x)
        F.hardsigmoid(x)
        F.logsigmoid(x)
        F.prelu(x, s[None])
        F.threshold(x, 0, 0)
        F.glu(x)
        F.tanhshrink(x)
        F.softshrink(x)
        F.hardshrink(x)
        F.dropout(x, 0.5)
        F.normalize(x)
        F.cosine_similarity(x, y)
        F.pairwise_distance(x, y)
        F.gumbel_softmax(x)
        F.gumbel_softmax(x, hard=True)
        F.linear(x, y)
        F.linear(x, y, w[0, 0, 0])
        F.linear(b3, y)
        F.linear(b3, y, w[0, 0, 0])
        F.conv2d(im, w)
        F.conv_transpose2d(im, w.transpose(0, 1))
        F.max_pool2d(im, 2)
        F.avg_pool2d(im, 2)
        F.adaptive_avg_pool2d(im, 1)
        F.adaptive_max_pool2d(im, 2)
        F.max_pool1d(im[0], 2)
        F.avg_pool1d(im[0], 2)
        F.lp_pool2d(im, 2, 2)
        F.interpolate(im, scale_factor=2)
        F.pad(x, (1, 1))
        F.pad(im, (1, 1, 1, 1), mode="reflect")
        F.pad(im, (1, 1, 1, 1), mode="circular")
        F.unfold(im, 2)
        F.fold(F.unfold(im, 2), (6, 6), 2)
        F.affine_grid(torch.rand(1, 2, 3, requires_grad=True), (1, 1, 2, 2))
        F.batch_norm(im, None, None, training=True)
        F.batch_norm(im, torch.zeros(2), torch.ones(2))
        F.layer_norm(x, (4,))
        F.group_norm(im, 1)
        F.instance_norm(im)
        F.rms_norm(x, (4,))
        F.local_response_norm(im, 2)
        F.embedding(idx, x)
        F.linear(b3.transpose(0, 1), y, v[:3])
        F.linear(v, y, v[:3])
        F.conv2d(im[0], w)
        F.interpolate(seq, scale_factor=2)
        F.interpolate(seq, scale_factor=2, mode="linear")
        F.interpolate(im, scale_factor=2, mode="bilinear")
        F.interpolate(im, scale_factor=2, mode="bicubic")
        F.interpolate(im, scale_factor=2, mode="nearest-exact")
        F.interpolate(im, scale_factor=0.5, mode="bilinear", antialias=True)
        F.interpolate(vol, scale_factor=2, mode="trilinear")
        F.pad(seq, (1, 1), mode="replicate")
        F.pad(vol, (1,) * 6, mode="reflect")
        F.rms_norm(x, (4,), v)
        F.bilinear(x, x, cube, v[:2])
        F.bilinear(x, x, cube)
        nn.LSTMCell(4, 5)(x)[0]
        nn.GRUCell(4, 5)(x)
        nn.RNNCell(4, 5)(x)
        nn.Linear(4, 2)(x)
        nn.BatchNorm1d(4)(x)
        nn.TransformerEncoderLayer(4, 2, 8)(b3)
        F.max_pool2d(im, 2, return_indices=True)[0]
        F.grid_sample(vol, torch.zeros(1, 2, 2, 2, 3), align_corners=False)
    """,
    "linalg": """
        torch.linalg.norm(x)
        torch.linalg.vector_norm(x)
        torch.linalg.matrix_norm(x)
        torch.linalg.inv(sq)
        torch.inverse(sq)
        torch.linalg.det(sq)
        torch.det(sq)
        torch.logdet(sq @ sq.T)
        torch.linalg.slogdet(sq)[1]
        torch.linalg.cholesky(sq @ sq.T)
        torch.cholesky_solve(sq, sq)
        torch.linalg.qr(sq)[0]
        torch.linalg.svd(sq)[1]
        torch.svd(sq)[1]
        torch.linalg.svdvals(sq)
        torch.linalg.eigh(sq @ sq.T)[0]
        torch.linalg.eigvalsh(sq @ sq.T)
        torch.linalg.eig(sq)[0]
        torch.linalg.solve(sq, sq)
        torch.linalg.lstsq(sq, sq)[0]
        torch.linalg.pinv(sq)
        torch.linalg.matrix_exp(sq)
        torch.matrix_power(sq, 3)
        torch.linalg.solve_triangular(sq, sq, upper=True)
        torch.linalg.cross(w[0, 0], w[0, 1])
        torch.fft.ifft(c)
        torch.fft.rfft(x)
        torch.fft.irfft(c)
        torch.fft.fft2(x)
        torch.fft.rfft2(x)
    """,
    "operators": """
        x + y
        x + 1
        1 + x
        x - y
        1 - x
        x * y
        x * 2
        x / y
        x / 2
        1 / x
        x ** 2
        x ** y
        2 ** x
        -x
        abs(x)
        x @ x.T
        v @ v
        b3 @ b3.mT
        torch.mm(x, x.T)
        torch.bmm(b3, b3.mT)
        torch.dot(v, v)
        torch.outer(v, v)
        torch.addmm(sq, x, x.T)
        x.sum()
        x.sum(0)
        x.sum(-1, keepdim=True)
        x.sum((0, 1))
        x.mean()
        x.mean(0)
        x.mean((0, 1))
        x.mean(-1, True)
        x.std()
        x.std(0)
        x.var()
        x.var(0)
        x.var(unbiased=False)
        x.prod()
        x.prod(0)
        x.max()
        x.max(0)[0]
        x.min()
        x.min(0)[0]
        x.amax()
        x.amax(0)
        x.amin(0)
        x.median()
        x.logsumexp(0)
        x.norm()
        x.norm(dim=1)
        x.norm(1)
        x.norm(2, 0)
        x.cumsum(0)
        x.cumprod(0)
        x.cummax(0)[0]
        x.nansum()
        x.nanmean()
        x.aminmax()[0]
        torch.std_mean(x)[0]
        torch.var_mean(x, 0)[1]
        x.view(-1)
        x.reshape(-1)
        x.reshape(3, 4)
        x.flatten()
        x.t()
        x.T
        x.mT
        x.transpose(0, 1)
        x.permute(1, 0)
        x.unsqueeze(0)
        x.squeeze()
        x.squeeze(0)
        x.unsqueeze(0).squeeze(0)
        x.expand(2, 3, 4)
        x.repeat(2, 1)
        x.repeat_interleave(2, 0)
        x[0]
        x[0, 1]
        x[:, 1]
        x[:, 1:]
        x[..., None]
        x[None]
        x[idx]
        x[mask]
        x[idx, idx]
        x[0:2]
        x.narrow(0, 0, 1)
        x.select(0, 0)
        x.split(2)[0]
        x.chunk(2)[0]
        x.unbind()[0]
        torch.unbind(x, 1)[0]
        x.index_select(0, idx)
        x.gather(1, idx[:, None])
        x.diagonal()
        x.tril()
        x.triu()
        x.flip(0)
        x.unfold(0, 2, 1)
        x.movedim(0, 1)
        x.swapaxes(0, 1)
        torch.tensor_split(x, 2)[0]
        x.hsplit(2)[0]
        b3.dsplit([1])[0]
        x.view_as(y)
        x.expand_as(x)
        x.T.contiguous()
        x.clone()
        x.to(torch.float64)
        x.double()
        x.half()
        x.type(torch.float64)
        c.real
        c.imag
        torch.view_as_real(c)
        c.abs()
        c.conj()
        c.angle()
        torch.complex(v, v)
        torch.polar(v, v)
        torch.cat([x, y])
        torch.hstack([x, y])
        torch.vstack([x, y])
        torch.where(mask, x, y)
        torch.where(mask, x, 0.0)
        x.masked_fill(mask, 0)
        x.scatter(0, idx[None], 1.0)
        x.scatter(0, idx[None], y)
        x.scatter_add(0, idx[None], y)
        x.index_add(0, idx, y[:2])
        x.index_fill(0, idx, 0.0)
        x.index_copy(0, idx, y[:2])
        x.index_put((idx,), v)
        torch.lerp(x, y, 0.5)
        torch.lerp(x, y, s)
        torch.addcmul(x, x, y)
        torch.addcdiv(x, x, y)
        torch.tensordot(x, y, 2)
        torch.cross(w[0, 0], w[0, 1])
        torch.cdist(x, y)
        torch.meshgrid(v, v, indexing="ij")[0]
        torch.cov(x)
        torch.corrcoef(x)
        torch.diff(x)
        torch.trace(sq)
        torch.renorm(x, 2, 0, 1.0)
        torch.clamp(x, 0, 1)
        x.clamp(min=0)
        x.clamp_min(0)
        x.clip(0, 1)
        torch.clamp(x, y, y)
        torch.maximum(x, y)
        torch.minimum(x, y)
        torch.fmax(x, y)
        torch.hypot(x, y)
        torch.atan2(x, y)
        torch.fmod(x, 2)
        x % 2
        torch.remainder(x, y)
        torch.round(x)
        torch.floor(x)
        torch.ceil(x)
        x.trunc()
        x.frac()
        torch.sign(x)
        x.exp()
        x.log()
        x.log2()
        x.log10()
        x.log1p()
        x.expm1()
        x.sqrt()
        x.rsqrt()
        x.square()
        x.pow(3)
        x.pow(0.5)
        x.sin()
        x.cos()
        x.tan()
        x.asin()
        x.acos()
        x.atan()
        x.sinh()
        x.cosh()
        x.tanh()
        x.erf()
        x.erfc()
        x.erfinv()
        x.lgamma()
        x.digamma()
        x.sigmoid()
        x.logit()
        x.reciprocal()
        x.neg()
        x.exp2()
        x.sinc()
        x.nan_to_num()
        x.logaddexp(y)
        x.xlogy(y)
        x.softmax(0)
        x.log_softmax(0)
        x.relu()
        x.sort()[0]
        x.topk(2)[0]
        torch.msort(x)
        x.cumsum(0).flip(0)
        x.logcumsumexp(0)
        torch.copysign(x, y)
        torch.ldexp(x, y)
        x.deg2rad()
        torch.baddbmm(b3 @ b3.mT, b3, b3.mT)
        torch.addr(x, w[0, 0, 0], v)
        torch.special.entr(x)
        torch.special.erfcx(x)
        torch.special.i0(x)
        torch.special.logit(x)
        torch.special.expit(x)
        torch.special.xlog1py(x, y)
        torch.special.gammaln(x)
        torch.special.log_ndtr(x)
        torch.special.multigammaln(x + 2, 2)
        torch.igamma(x.detach(), y)
        torch.broadcast_to(x, (2, 3, 4))
        torch.atleast_3d(x)
        torch.vander(v)
        torch.tile(x, (2,))
        torch.ravel(x.T)
        torch.concat([x])
        torch.dstack([x, y])
        torch.column_stack([x, y])
        torch.unflatten(x, 1, (2, 2))
        x.unflatten(1, (2, 2))
        x.sum_to_size(1, 4)
        x.as_strided((2, 2), (1, 1))
        x.matmul(y.T).exp()
        torch.logaddexp2(x, y)
        torch.rad2deg(x)
        torch.true_divide(x, y)
        torch.subtract(x, y)
        torch.multiply(x, y)
        torch.rsub(x, y)
        torch.addmm(v[:3], x, x.T)
        x.inner(y)
        x.nanmedian()
        x[None].squeeze((0, 1))
        x.clamp(max=1)
        torch.pow(x, torch.tensor(2.0))
        x.sum(dim=[])
        x.mean((0, 1), keepdim=True)
        torch.max(x, y)
        x[None].mT
        x @ y.mT
    """,
    "steps": """
        torch.stack([x, y])
        torch.mv(x, v)
        x @ v
        v[:3] @ x
        b3 @ v
        b3 @ y.T
        v @ b3.mT
        torch.addmv(v[:3], x, v)
        torch.addbmm(v[:3], b3, b3.mT)
        torch.vdot(v, v)
        torch.einsum("ij,kj->ik", x, y)
        torch.einsum("bij,kj->bik", b3, y)
        torch.einsum("ij,ij->i", x, y)
        torch.einsum("i,j->ij", v, v)
        torch.einsum("ij->j", x)
        torch.einsum("ij->ji", x)
        F.conv1d(seq, w[:, :, 0])
        F.conv1d(seq, w[:, :, 0], padding="same")
        F.conv_transpose1d(seq, w[:2, :, 0])
        nn.Conv3d(2, 3, 2)(vol)
        nn.ConvTranspose2d(2, 3, 2)(im)
        F.scaled_dot_product_attention(b3[None], b3[None], b3[None])
        F.scaled_dot_product_attention(b3[None], b3[None], b3[None], is_causal=True)
        F.scaled_dot_product_attention(b3[None], b3[None], b3[None], dropout_p=0.5)
        F.scaled_dot_product_attention(b3, b3, b3)
        nn.LSTM(4, 5)(b3)[0]
        nn.LSTM(4, 5)(b3)[1][0]
        nn.LSTM(4, 5, num_layers=2)(b3)[1][1]
        nn.LSTM(4, 5, bidirectional=True)(b3)[0]
        nn.LSTM(4, 5, batch_first=True)(b3)[0]
        nn.GRU(4, 5)(b3)[0]
        nn.GRU(4, 5)(b3)[1]
        nn.GRU(4, 5, batch_first=True)(b3)[0]
        nn.RNN(4, 5)(b3)[0]
        F.embedding_bag(idx, x, torch.tensor([0]))
        F.pixel_shuffle(vol[0].transpose(0, 1).repeat(1, 2, 1, 1), 2)
        F.pixel_unshuffle(im, 2)
        F.rrelu(x, training=True)
        F.softmin(x, 1)
        x.roll(1, 0)
        x.rot90()
        x.take(idx)
        x[x > 0.5]
        x.masked_select(mask)
        x.masked_scatter(mask, y)
        x.put(idx, v[:2])
        v.diag()
        x.diag()
        v.diag_embed()
        v.diagflat()
        x.split([1, 2])[0]
        x.kthvalue(1)[0]
        x.median(1)[0]
        x.mode(1)[0]
        x.dist(y)
        torch.pdist(x)
        torch.kron(x, y)
        torch.linalg.vecdot(x, y)
        torch.linalg.solve(sq, v[:3])
        torch.linalg.eigvals(sq)
        torch.linalg.lu_factor(sq)[0]
        torch.cholesky_inverse(sq)
        torch.fft.fft(x)
        torch.fft.ifft(x)
        torch.fft.fft(c)
        torch.fft.fftshift(x)
        torch.div(x, y, rounding_mode="floor")
        torch.div(x, 2, rounding_mode="floor")
        torch.fmod(x, y)
        torch.fmod(x, 2)
        torch.xlogy(x, 2)
        torch.xlogy(2, x)
        torch.float_power(x, 2)
        torch.round(x, decimals=1)
        x.masked_fill(mask, s)
        x.masked_fill(mask, 0)
        x.clamp_min(v)
        torch.special.i0e(x)
        torch.special.i1e(x)
        torch.special.ndtr(x)
        torch.scatter_reduce(x, 0, tgt[None].expand(1, 3), y, "mean")
        torch.index_reduce(x, 0, idx, y[:2], "mean")
        F.max_unpool2d(*F.max_pool2d(im, 2, return_indices=True), 2)
    """,
}


def probe(torch, P):
    def leaf(*shape, **options):
        return torch.rand(shape, **options).requires_grad_()

    names = {
        **{name: leaf(*shape) for name, shape in (("x", (3, 4)), ("y", (3, 4)), ("v", (4,)), ("s", ()))},
        **{
            name: leaf(*shape)
            for name, shape in (("im", (1, 2, 6, 6)), ("w", (3, 2, 3, 3)), ("b3", (2, 3, 4)))
        },
        **{
            name: leaf(*shape)
            for name, shape in (("seq", (1, 2, 6)), ("vol", (1, 2, 4, 4, 4)), ("cube", (2, 4, 4)))
        },
        "sq": (torch.rand(3, 3) + 2 * torch.eye(3)).requires_grad_(),
        "c": leaf(3, dtype=torch.complex64),
        "idx": torch.tensor([0, 2]),
        "tgt": torch.tensor([0, 1, 2]),
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
    }
    names["mask"] = names["x"].detach() > 0.5
    for what, lines in EXPRESSIONS.items():

        def shown():
            found = {}
            for line in map(str.strip, lines.strip().splitlines()):
                found[line] = type(eval(line, names).grad_fn).__name__
            return found

        shown.__name__ = what
        P(shown)
