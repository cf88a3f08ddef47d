"""Names of programs beside layers and operators: versions, switches, checks, files, marks, checkpoints,
times.
"""

import functools
import io
import math
from collections import OrderedDict
from importlib import import_module


def probe(torch, P):
    def module(name):
        return import_module(f"{torch.__name__}.{name}")

    def told(*calls):
        """What calls give, or the type of what they raise."""
        found = []
        for f in calls:
            try:
                found.append(f())
            except Exception as e:
                found.append(type(e).__name__)
        return found

    @P
    def versions():
        V = module("torch_version").TorchVersion
        v = V("2.13.0+cpu")
        pairs = ["2.0", "2.13", "2.13.0", "2.13.0+cpu", "2.13.1", "3", "2.13.0a1", "2.13.0.dev5", "parrot"]
        compared = [(v < o, v <= o, v == o, v != o, v >= o, v > o) for o in pairs]
        tuples = [
            v >= (1, 8),
            v < (3,),
            v >= [2, 13],
            v == (2, 13, 0),
            V("1.10") > "1.9",
            V("2.0rc1") < "2.0",
        ]
        return compared, tuples, told(lambda: v > 3), hash(v) == hash(str(v))

    @P
    def functional_module():
        f = module("functional")
        names = ["einsum", "split", "stft", "unique", "norm", "meshgrid"]
        return (
            sorted(f.__all__),
            all(hasattr(f, n) for n in names),
            f.einsum("i,i", torch.ones(2), torch.ones(2)),
        )

    @P
    def attention_switches():
        c = torch.backends.cuda
        kinds = ["flash", "mem_efficient", "math", "cudnn"]
        before = [getattr(c, f"{k}_sdp_enabled")() for k in kinds]
        c.enable_flash_sdp(False)
        after = c.flash_sdp_enabled()
        c.enable_flash_sdp(True)
        with c.sdp_kernel(enable_math=False):
            within = c.math_sdp_enabled()
        return before, after, within, c.math_sdp_enabled(), c.is_built(), c.matmul.allow_tf32

    @P
    def backend_switches():
        b = torch.backends
        with b.cudnn.flags(enabled=False, benchmark=True):
            within = b.cudnn.enabled, b.cudnn.benchmark
        with b.mkldnn.flags(enabled=False):
            other = b.mkldnn.enabled
        refused = told(lambda: setattr(b.cuda.matmul, "bogus", 1), lambda: b.mps.is_macos_or_newer(13, 0))
        shown = (
            b.cudnn.version(),
            b.cudnn.enabled,
            b.cudnn.benchmark,
            b.cudnn.deterministic,
            b.cudnn.allow_tf32,
        )
        return within, other, refused, shown, b.mkldnn.enabled, b.fp32_precision, b.openmp.is_available()

    @P
    def checks():
        names = ["_check", "_check_index", "_check_value", "_check_type", "_check_not_implemented"]
        raised = [told(lambda n=n: getattr(torch, n)(False, lambda: "said")) for n in names]
        t = torch.tensor([True, False])
        more = told(
            lambda: torch._check(True),
            lambda: torch._check(3),
            lambda: torch._check(False, "text"),
            lambda: torch._check_with(KeyError, False, lambda: "a"),
            lambda: torch._check_is_size(3),
            lambda: torch._check_is_size(-3),
            lambda: torch._check_tensor_all(t),
            lambda: torch._check_tensor_all(t.long()),
        )
        return raised, more

    @P
    def check_says_its_message():
        torch._check(False, lambda: f"{1 + 1} things")

    @P
    def makers_of_other_devices():
        x = torch.ones(1)
        sparse = torch.sparse.FloatTensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (3,))
        asked = isinstance(x, torch.cuda.FloatTensor), isinstance(x, torch.sparse.FloatTensor)
        return (
            asked,
            isinstance(sparse, torch.sparse.FloatTensor),
            sparse.to_dense(),
            torch.cuda.HalfTensor.__name__,
        )

    @P
    def a_maker_without_a_device():
        torch.cuda.FloatTensor(3)

    @P
    def streams_of_the_processor():
        with torch.cpu.stream(torch.cpu.current_stream()):
            return torch.cpu.is_initialized(), torch.cpu.device_count(), torch.cpu.set_device(0)

    @P
    def other_accelerators():
        x = torch.xpu
        return x.is_available(), x.device_count(), x.is_bf16_supported(), torch.mps.device_count()

    @P
    def masks_as_numbers():
        F = torch.nn.functional
        mask = torch.tensor([True, False])
        floats = F._canonical_mask(torch.tensor([1.0]), "m", None, "o", torch.float32)
        refused = told(lambda: F._canonical_mask(mask.long(), "m", None, "o", torch.float32))
        made = F._canonical_mask(mask, "m", None, "o", torch.float32)
        return made, floats, refused, F._none_or_dtype(None), told(lambda: F._none_or_dtype(3))

    @P
    def activations_by_name():
        f = module("nn.modules.transformer")._get_activation_fn
        return f("relu")(torch.tensor([-1.0, 2.0])), f("gelu")(torch.tensor(1.0)), told(lambda: f("x"))

    @P
    def operations_as_modules():
        f, x = torch.nn.quantized.FloatFunctional(), torch.tensor([1.0, -2.0])
        binary = [getattr(f, n)(x, x) for n in ("add", "mul", "add_relu", "matmul")]
        return repr(f), binary, f.cat([x, x]), f.add_scalar(x, 2), f.mul_scalar(x, 2.0), list(f.state_dict())

    @P
    def operations_as_modules_have_no_forward():
        torch.nn.quantized.FloatFunctional()(torch.ones(1))

    @P
    def fused_modules():
        nn = torch.nn
        m = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU()).eval()
        with torch.no_grad():
            for k, p in enumerate(m.parameters()):
                p.fill_(0.5 + k)
            m[1].running_mean.fill_(0.25)
        x = torch.arange(4.0).reshape(1, 1, 2, 2)
        fused = torch.ao.quantization.fuse_modules(m, ["0", "1"])
        return m(x), fused(x), [type(c).__name__ for c in fused], type(m[1]).__name__

    @P
    def prefixes_of_keys():
        d = OrderedDict([("module.a", 1), ("module.b", 2), ("c", 3)])
        d._metadata = OrderedDict([("", 1), ("module", 2), ("module.x", 3)])
        module("nn.modules.utils").consume_prefix_in_state_dict_if_present(d, "module.")
        return dict(d), dict(d._metadata)

    @P
    def settings_of_files():
        s = torch.serialization
        shown = s.get_default_load_endianness(), s.get_default_mmap_options(), s.get_crc32_options()
        s.set_crc32_options(False)
        changed = s.get_crc32_options()
        s.set_crc32_options(True)
        return shown, changed, [e.name for e in s.LoadEndianness]

    @P
    def globals_of_files():
        import fractions

        file = io.BytesIO()
        torch.save({"a": fractions.Fraction(1, 2), "b": torch.ones(1), "c": math.sqrt}, file)
        file.seek(0)
        found = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))
        with torch.serialization.safe_globals([fractions.Fraction]):
            file.seek(0)
            return found, sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))

    @P
    def variables():
        v = torch.autograd.variable
        x = torch.autograd.Variable(torch.ones(1), requires_grad=True)
        with torch.autograd.set_multithreading_enabled(False):
            return x.requires_grad, isinstance(x, torch.autograd.Variable), isinstance(x, v.Variable)

    @P
    def names_of_results():
        names = sorted(t.__name__ for t in torch.return_types.all_return_types)
        return [n for n in ("max", "topk", "svd", "sort", "median") if n in names]

    @P
    def stances():
        with torch.compiler.set_stance("force_eager"):
            return torch.compiler.wrap_numpy(lambda a: a + 1)(torch.tensor([1]))

    @P
    def shapes_as_tensors():
        return torch._shape_as_tensor(torch.ones(2, 3))

    _checkpoints(torch, P)
    _times(torch, P)
    _flexible(torch, P)


def _checkpoints(torch, P):
    c = torch.utils.checkpoint
    aten = torch.ops.aten

    def network(x, w, b):
        h = torch.mm(x, w).sin()
        h = torch.nn.functional.linear(h, w, b).relu() @ w
        return torch.softmax(torch.mm(torch.sigmoid(h).exp() * 2, w), -1).sin().sum()

    def gradients(f):
        numbers = torch.arange(9, dtype=torch.float64).reshape(3, 3)
        w, x = numbers.div(5).requires_grad_(), numbers.sin().requires_grad_()
        b = torch.ones(3, dtype=torch.float64, requires_grad=True)
        f(x, w, b).backward()
        return [p.grad for p in (x, w, b)]

    def selective(policy, function=network, **options):
        contexts = functools.partial(c.create_selective_checkpoint_contexts, policy)

        def f(*args):
            return c.checkpoint(function, *args, use_reentrant=False, context_fn=contexts, **options)

        return gradients(f)

    @P
    def plain_gradients():
        return gradients(network)

    @P
    def selective_by_a_list():
        return selective([aten.mm.default]), selective([aten.mm.default], early_stop=False)

    @P
    def selective_by_a_policy():
        asked = []

        def policy(ctx, op, *args, **kwargs):
            products = op in (aten.mm.default, aten.addmm.default)
            asked.append(products)
            return c.CheckpointPolicy.MUST_SAVE if products else c.CheckpointPolicy.PREFER_RECOMPUTE

        return selective(policy), sum(asked)

    @P
    def selective_keeps_all():
        return selective(lambda *args, **kwargs: True)

    @P
    def selective_keeps_elementwise():
        return selective([aten.sin.default, aten.relu.default, aten.sigmoid.default])

    @P
    def selective_refuses():
        c.create_selective_checkpoint_contexts(3)

    @P
    def selective_refuses_what_is_no_operator():
        c.create_selective_checkpoint_contexts([3])

    @P
    def selective_sees_changes():
        def changing(x, w, b):
            h = torch.mm(x, w)
            y = h.clone()
            h.add_(1)
            return (y.sin() * h).sum() + b.sum()

        return selective([aten.mm.default], changing)

    @P
    def policies():
        return [(p.name, p.value) for p in c.CheckpointPolicy]


def _times(torch, P):
    benchmark = import_module(f"{torch.__name__}.utils.benchmark")

    def taken(times, number=100, stmt="x + 1", setup="pass", **where):
        return benchmark.Measurement(number, times, benchmark.TaskSpec(stmt=stmt, setup=setup, **where))

    def several():
        return [
            taken([1e-2] * 5, label="add", sub_label="small", description="a"),
            taken([1e-2 * (1 + 0.1 * i) for i in range(10)], 7, label="add", sub_label="large",
                  description="b", num_threads=4),
            taken([2e-3, 2.2e-3], label="add", sub_label="small", description="b"),
            taken([3e-5], 1000, label="mul", sub_label="small", description="b", env="dev"),
            taken([1e-4, 1.1e-4, 1.05e-4]),
            taken([1.23456e-3 * (1 + 1e-4 * i) for i in range(20)], 1, "x\n+ 1", "x = 3\ny = 4"),
        ]  # fmt: skip

    @P
    def measurements():
        return [repr(m).split("\n", 1)[1] for m in several()]

    @P
    def measured_numbers():
        return [
            (
                m.significant_figures,
                m.has_warnings,
                m.meets_confidence(),
                m.title,
                m.as_row_name,
                len(m.times),
            )
            for m in several()
        ], [(m.median * 1e9, m.iqr * 1e9) for m in several()]

    @P
    def compared():
        table = benchmark.Compare(several()[:4])
        plain = str(table)
        table.trim_significant_figures()
        trimmed = str(table)
        table.highlight_warnings()
        return plain, trimmed, str(table)

    @P
    def coloured():
        table = benchmark.Compare([several()[0], several()[2]])
        table.colorize()
        columns = str(table)
        table.colorize(rowwise=True)
        return columns, str(table)

    @P
    def units():
        merged = benchmark.Measurement.merge([several()[0], several()[0], several()[2]])
        return (
            benchmark.select_unit(1e-4),
            benchmark.unit_to_english("us"),
            benchmark.trim_sigfig(1234.5, 2),
            len(merged),
        )

    @P
    def timed():
        t = benchmark.Timer("x + y", setup="y = 2", globals={"x": 1})
        m = t.timeit(10)
        found = t.blocked_autorange(min_run_time=0.01), t.adaptive_autorange(min_run_time=0.001)
        return m.number_per_run, len(m.raw_times), [f.number_per_run > 10 and f.median > 0 for f in found]

    @P
    def statements_are_text():
        benchmark.Timer(stmt=3)

    @P
    def languages():
        benchmark.Timer("x", language="bogus")


def _flexible(torch, P):
    fa = import_module(f"{torch.__name__}.nn.attention.flex_attention")
    numbers = torch.arange(80, dtype=torch.float64).reshape(2, 2, 5, 4)
    q, k, v = (numbers.mul(s).sin() for s in (0.1, 0.2, 0.3))

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def block_mask(function, length=5, size=128, batches=None):
        return fa.create_block_mask(function, batches, None, length, length, device="cpu", BLOCK_SIZE=size)

    def parts(m):
        blocks = m.kv_num_blocks, m.kv_indices, m.full_kv_num_blocks, m.full_kv_indices
        columns = m.q_num_blocks, m.q_indices, m.full_q_num_blocks, m.full_q_indices
        return blocks, columns, m.shape, m.sparsity(), m.BLOCK_SIZE, m.numel(), m.to_dense()

    @P
    def block_masks():
        given = torch.tensor([[[1, 2]]]), torch.tensor([[[[0, 1], [0, 1]]]])
        return (
            parts(block_mask(causal)),
            parts(block_mask(causal, 8, 2)),
            parts(block_mask(lambda b, h, q, k: q + b >= k - 3, 8, (2, 4), 2)),
            fa.BlockMask.from_kv_blocks(*given, BLOCK_SIZE=2).to_dense(),
        )

    @P
    def block_masks_shown():
        return repr(block_mask(causal, 8, 2)), str(block_mask(causal, 8, 2))

    @P
    def masks_of_functions():
        near = fa.and_masks(causal, lambda b, h, q, k: q - k < 2)
        last = fa.or_masks(causal, lambda b, h, q, k: k == 3)
        made = [fa.create_mask(m, 1, 1, 4, 4, device="cpu").int() for m in (causal, near, last)]
        return made, fa.noop_mask(*[torch.tensor(0)] * 4)

    @P
    def flexible_attention():
        def alibi(score, b, h, q_idx, kv_idx):
            return score + (kv_idx - q_idx) * 0.1 * (h + 1)

        table = torch.arange(50, dtype=torch.float64).reshape(2, 5, 5).cos()
        starts = torch.tensor([1, 3])

        def biased(score, b, h, q_idx, kv_idx):
            return torch.where(kv_idx >= starts[b], score + table[h, q_idx, kv_idx], -float("inf"))

        few = block_mask(lambda b, h, q, k: q < 2)
        return (
            fa.flex_attention(q, k, v),
            fa.flex_attention(q, k, v, score_mod=alibi),
            fa.flex_attention(q, k, v, score_mod=biased),
            fa.flex_attention(q, k, v, block_mask=block_mask(causal), return_lse=True),
            fa.flex_attention(q, k, v, block_mask=few, return_lse=True)[0],
            fa.flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True, scale=0.3),
            fa.flex_attention(q.float(), k.float(), v.float(), score_mod=alibi).mul(1000).round(),
        )

    @P
    def flexible_attention_wants_as_many_heads():
        fa.flex_attention(q, k[:, :1], v[:, :1])

    @P
    def flexible_attention_wants_batches():
        fa.flex_attention(q[0], k[0], v[0])

    @P
    def flexible_attention_wants_the_masks_length():
        fa.flex_attention(q, k, v, block_mask=block_mask(causal, 8, 2))
