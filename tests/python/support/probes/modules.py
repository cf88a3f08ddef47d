"""What modules do: hooks, state, attributes, errors. Run with Facula and with PyTorch; see test_probes.py."""

import copy
import io
import pickle
from importlib import import_module

from . import norm


def probe(torch, P):
    nn = torch.nn

    def lin():
        m = nn.Linear(2, 2)
        with torch.no_grad():
            m.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            m.bias.fill_(0.5)
        return m

    @P
    def full_backward():
        m = lin()
        log = []
        m.register_full_backward_hook(lambda m, gi, go: log.append((norm(gi), norm(go))))
        x = torch.ones(1, 2, requires_grad=True)
        m(x).sum().backward()
        return log, x.grad

    @P
    def full_backward_no_input_grad():
        m = lin()
        log = []
        m.register_full_backward_hook(lambda m, gi, go: log.append((norm(gi), norm(go))))
        m(torch.ones(1, 2)).sum().backward()
        return log

    @P
    def full_backward_replace():
        m = lin()
        m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
        x = torch.ones(1, 2, requires_grad=True)
        m(x).sum().backward()
        return x.grad, m.weight.grad

    @P
    def backward_pre_replace():
        m = lin()
        m.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
        x = torch.ones(1, 2, requires_grad=True)
        m(x).sum().backward()
        return x.grad, m.weight.grad

    class Two(nn.Module):
        def forward(self, a, b, c=None):
            return a * 2, b * 3

    @P
    def two_inputs():
        m = Two()
        log = []
        m.register_full_backward_hook(lambda m, gi, go: log.append((norm(gi), norm(go))))
        a = torch.ones(1, requires_grad=True)
        b = torch.ones(1)
        y, z = m(a, b, c=None)
        (y + z).sum().backward()
        return log

    @P
    def two_inputs_str():
        m = Two()
        log = []
        m.register_full_backward_hook(lambda m, gi, go: log.append((norm(gi), norm(go))))
        a = torch.ones(1, requires_grad=True)
        b = torch.ones(1, requires_grad=True)
        y, z = m(a, b, "s")
        y.sum().backward()
        return log

    @P
    def hook_wrong_count():
        m = lin()
        m.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
        x = torch.ones(1, 2, requires_grad=True)
        m(x).sum().backward()
        return x.grad

    @P
    def mixing_backward_hooks():
        m = lin()
        m.register_full_backward_hook(lambda m, gi, go: None)
        m.register_backward_hook(lambda m, gi, go: None)

    @P
    def old_backward_hook():
        m = nn.ReLU()
        log = []
        m.register_backward_hook(lambda m, gi, go: log.append((norm(gi), norm(go))))
        x = torch.ones(1, 2, requires_grad=True)
        m(x).sum().backward()
        return log

    @P
    def forward_hooks_order():
        m = lin()
        log = []
        m.register_forward_hook(lambda m, a, o: log.append("b"))
        m.register_forward_hook(lambda m, a, o: log.append("a"), prepend=True)
        m.register_forward_pre_hook(lambda m, a: log.append("p"))
        m.register_forward_pre_hook(lambda m, a, k: log.append(sorted(k)), with_kwargs=True)
        m(input=torch.ones(1, 2))
        return log

    @P
    def forward_pre_kwargs_bad():
        m = lin()
        m.register_forward_pre_hook(lambda m, a, k: 5, with_kwargs=True)
        m(torch.ones(1, 2))

    @P
    def forward_hook_kwargs():
        m = lin()
        m.register_forward_hook(lambda m, a, k, o: o * 0 + len(k), with_kwargs=True)
        return m(input=torch.ones(1, 2))

    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    @P
    def always_call():
        m = Bad()
        log = []
        m.register_forward_hook(lambda m, a, o: log.append(o), always_call=True)
        m.register_forward_hook(lambda m, a, o: log.append("never"))
        try:
            m(torch.ones(1))
        except ValueError:
            log.append("E")
        return log

    @P
    def handle_remove():
        m = lin()
        log = []
        with m.register_forward_hook(lambda m, a, o: log.append(1)):
            m(torch.ones(1, 2))
        m(torch.ones(1, 2))
        return log, len(m._forward_hooks)

    @P
    def state_dict_hooks():
        m = nn.Sequential(lin())
        m[0]._register_state_dict_hook(lambda mod, sd, pre, meta: sd.__setitem__(pre + "x", len(sd)))
        m.register_state_dict_pre_hook(lambda mod, pre, kv: setattr(mod, "seen", (pre, kv)))
        return list(m.state_dict()), m.seen, m.state_dict()._metadata

    @P
    def state_dict_post_hook():
        m = lin()
        m.register_state_dict_post_hook(lambda mod, sd, pre, meta: sd.__setitem__("new", 1))
        return list(m.state_dict())

    @P
    def load_hooks():
        m = lin()
        log = []
        m.register_load_state_dict_pre_hook(
            lambda mod, sd, pre, meta, strict, mk, uk, em: log.append(
                (type(mod).__name__, pre, strict, len(sd))
            )
        )
        m._register_load_state_dict_pre_hook(
            lambda sd, pre, meta, strict, mk, uk, em: log.append((pre, strict))
        )
        m.register_load_state_dict_post_hook(lambda mod, inc: log.append(repr(inc)))
        m.load_state_dict(m.state_dict())
        m.load_state_dict({}, strict=False)
        return log

    @P
    def load_post_clear():
        m = lin()
        m.register_load_state_dict_post_hook(lambda mod, inc: inc.missing_keys.clear())
        return m.load_state_dict({})

    @P
    def load_missing():
        return lin().load_state_dict({})

    @P
    def load_unexpected():
        m = lin()
        return m.load_state_dict({**m.state_dict(), "x": torch.ones(1), "a.b": torch.ones(1)})

    @P
    def load_unexpected_lax():
        m = lin()
        return m.load_state_dict({**m.state_dict(), "x": torch.ones(1), "a.b": torch.ones(1)}, strict=False)

    @P
    def load_shape():
        return lin().load_state_dict({"weight": torch.ones(3), "bias": torch.ones(2)}, strict=False)

    @P
    def load_notensor():
        return lin().load_state_dict({"weight": 5, "bias": torch.ones(2)}, strict=False)

    @P
    def load_notdict():
        return lin().load_state_dict([1])

    @P
    def load_assign():
        m = lin()
        w = torch.ones(2, 2, dtype=torch.float64)
        m.load_state_dict({"weight": w, "bias": torch.ones(2)}, assign=True)
        return (
            type(m.weight).__name__,
            m.weight.dtype,
            m.weight.data_ptr() == w.data_ptr(),
            m.weight.requires_grad,
        )

    @P
    def load_scalar_old():
        m = nn.Module()
        m.register_buffer("n", torch.tensor(0.0))
        m.load_state_dict({"n": torch.tensor([4.0])})
        return m.n

    @P
    def bn_old():
        m = nn.BatchNorm1d(2)
        sd = {k: v for k, v in m.state_dict().items() if "num" not in k}
        return m.load_state_dict(sd)

    @P
    def set_submodule():
        m = nn.Sequential(nn.Sequential(nn.ReLU()))
        m.set_submodule("0.0", nn.Tanh())
        return repr(m)

    @P
    def set_submodule_bad():
        m = nn.Sequential(nn.Sequential(nn.ReLU()))
        m.set_submodule("0.x.y", nn.Tanh())

    @P
    def get_sub_bad():
        return nn.Sequential(nn.ReLU()).get_submodule("0.x")

    @P
    def get_sub_notmod():
        return nn.Sequential(nn.ReLU()).get_submodule("0.inplace")

    @P
    def get_param():
        m = nn.Sequential(lin())
        return m.get_parameter("0.bias"), m.get_submodule("") is m

    @P
    def get_param_bad():
        return nn.Sequential(lin()).get_parameter("0.x")

    @P
    def get_param_notp():
        return nn.Sequential(nn.BatchNorm1d(2)).get_parameter("0.running_mean")

    @P
    def get_buffer_bad():
        return nn.Sequential(nn.BatchNorm1d(2)).get_buffer("0.weight")

    @P
    def reg_param_bad():
        nn.Module().register_parameter("a.b", None)

    @P
    def reg_param_bad2():
        nn.Module().register_parameter("", None)

    @P
    def reg_param_bad3():
        m = nn.Module()
        m.a = 1
        m.register_parameter("a", None)

    @P
    def reg_param_bad4():
        nn.Module().register_parameter("a", torch.ones(1))

    @P
    def reg_param_bad5():
        nn.Module().register_parameter("a", nn.Parameter(torch.ones(1)) * 2)

    @P
    def reg_buf_bad():
        nn.Module().register_buffer("a", 5)

    @P
    def add_bad():
        nn.Module().add_module("a", 5)

    @P
    def add_bad2():
        nn.Module().add_module(3, nn.ReLU())

    @P
    def set_bad():
        m = lin()
        m.weight = torch.ones(2, 2)

    @P
    def set_bad2():
        m = nn.Sequential(lin())
        setattr(m, "0", 5)

    @P
    def set_bad3():
        m = nn.BatchNorm1d(2)
        m.running_mean = "a"

    @P
    def before_init():
        class M(nn.Module):
            def __init__(self):
                self.a = nn.Linear(1, 1)

        M()

    @P
    def before_init2():
        class M(nn.Module):
            def __init__(self):
                self.p = nn.Parameter(torch.ones(1))

        M()

    @P
    def no_forward():
        nn.Module()(1)

    @P
    def unknown_attr():
        return lin().nope

    @P
    def init_kwargs():
        nn.Module(a=5)

    @P
    def init_args():
        nn.Module(5)

    @P
    def named_dup():
        linear = lin()
        m = nn.Sequential(linear, linear)
        return (
            [k for k, _ in m.named_parameters()],
            [k for k, _ in m.named_parameters(remove_duplicate=False)],
            [k for k, _ in m.named_modules()],
            [k for k, _ in m.named_modules(remove_duplicate=False)],
            [k for k, _ in m.named_children()],
        )

    @P
    def to_int():
        return lin().to(torch.int64)

    @P
    def to_things():
        m = lin().to("cpu", torch.float64)
        a = m.weight.dtype
        m.to(torch.ones(1))
        return (
            a,
            m.weight.dtype,
            m.half().weight.dtype,
            m.bfloat16().bias.dtype,
            m.double().bias.dtype,
            m.float().bias.dtype,
        )

    @P
    def to_mf():
        m = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        return m.weight.stride(), m.weight.is_contiguous(memory_format=torch.channels_last)

    @P
    def type_str():
        return lin().type(torch.float64).weight.dtype

    @P
    def train_bad():
        return lin().train(5)

    @P
    def zero_grad():
        m = lin()
        m(torch.ones(1, 2)).sum().backward()
        m.zero_grad(False)
        a = m.weight.grad.clone()
        m.zero_grad()
        return a, m.weight.grad

    @P
    def share():
        m = lin()
        return m.share_memory() is m, m.weight.is_shared()

    @P
    def deep():
        m = nn.Sequential(lin())
        m.register_forward_hook(lambda m, a, o: o * 2)
        c = copy.deepcopy(m)
        return c(torch.ones(1, 2)), c[0].weight is m[0].weight

    @P
    def pick():
        m = pickle.loads(pickle.dumps(nn.Sequential(lin(), nn.BatchNorm1d(2))))
        return m.eval()(torch.ones(1, 2))

    @P
    def saveload():
        b = io.BytesIO()
        torch.save(lin(), b)
        b.seek(0)
        return torch.load(b, weights_only=False)(torch.ones(1, 2))

    @P
    def dirs():
        return [x for x in dir(lin()) if x in ("weight", "bias", "forward")]

    @P
    def buffers():
        m = nn.Module()
        m.register_buffer("a", torch.ones(1), persistent=False)
        m.b = nn.Buffer(torch.ones(1))
        return list(m.state_dict()), [k for k, _ in m.named_buffers()]

    @P
    def apply():
        log = []
        nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).apply(lambda m: log.append(type(m).__name__))
        return log

    @P
    def gstate():

        mm = import_module(torch.__name__ + ".nn.modules.module")
        log = []
        h = mm.register_module_forward_hook(lambda m, a, o: log.append(type(m).__name__))
        nn.Sequential(nn.ReLU())(torch.ones(1))
        h.remove()
        nn.ReLU()(torch.ones(1))
        return log

    @P
    def gback():

        mm = import_module(torch.__name__ + ".nn.modules.module")
        log = []
        h = mm.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, norm(gi))))
        x = torch.ones(1, requires_grad=True)
        nn.Sequential(nn.ReLU())(x).backward()
        h.remove()
        return log

    @P
    def greg():

        mm = import_module(torch.__name__ + ".nn.modules.module")
        log = []
        hs = [
            mm.register_module_parameter_registration_hook(lambda m, n, p: log.append(n)),
            mm.register_module_buffer_registration_hook(lambda m, n, p: log.append(n)),
            mm.register_module_module_registration_hook(lambda m, n, p: log.append(n)),
        ]
        nn.Sequential(nn.BatchNorm1d(2))
        [h.remove() for h in hs]
        return log

    @P
    def seq_ops():
        s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
        return (
            repr(s[1:]),
            repr(s + nn.Sequential(nn.ReLU())),
            len(s * 2),
            repr(s.pop(1)),
            repr(s.insert(0, nn.ELU())),
            s[-1],
        )

    @P
    def seq_slice_del():
        s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
        del s[0:2]
        return repr(s)

    @P
    def seq_bad():
        return nn.Sequential(nn.ReLU())[3]

    @P
    def ml():
        m = nn.ModuleList([nn.ReLU()])
        m += [nn.Tanh()]
        m.insert(0, nn.ELU())
        return repr(m + [nn.ReLU()]), repr(m[:2]), repr(m.pop(-1)), len(m)

    @P
    def ml_call():
        return nn.ModuleList([nn.ReLU()])(1)

    @P
    def extra_state():
        class M(nn.Module):
            def get_extra_state(self):
                return 5

            def set_extra_state(self, s):
                self.s = s

        m = M()
        sd = m.state_dict()
        m.load_state_dict(sd)
        return sd, m.s

    @P
    def delattr_():
        m = lin()
        del m.bias
        return m.bias

    @P
    def to_empty():
        return lin().to_empty(device="cpu").weight.shape

    @P
    def requires_grad_():
        return [p.requires_grad for p in lin().requires_grad_(False).parameters()]

    @P
    def clip():
        p = nn.Parameter(torch.ones(3))
        p.grad = torch.tensor([3.0, 4.0, 0.0])
        t = nn.utils.clip_grad_norm_([p], 1.0)
        return t, p.grad, nn.utils.clip_grad_norm_([p], float("inf")), nn.utils.clip_grad_norm_([], 1.0)

    @P
    def clipinf():
        p = nn.Parameter(torch.ones(3))
        p.grad = torch.tensor([3.0, -4.0, 0.0])
        return (
            nn.utils.clip_grad_norm_(p, 1.0, norm_type=float("inf")),
            p.grad,
            nn.utils.clip_grad_value_(p, 0.5),
            p.grad,
        )

    @P
    def clipnan():
        p = nn.Parameter(torch.ones(3))
        p.grad = torch.tensor([float("nan"), -4.0, 0.0])
        return nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)

    @P
    def vec():
        ps = list(lin().parameters())
        v = nn.utils.parameters_to_vector(ps)
        nn.utils.vector_to_parameters(v * 2, ps)
        return v, ps[0], ps[1]

    @P
    def repr_param():
        return repr(nn.Parameter(torch.ones(2)))
