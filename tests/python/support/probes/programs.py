"""What people's programs lean on: what their classes call of modules, checks of gradients, old keywords."""

import importlib
from collections import OrderedDict


def probe(torch, P):
    nn, autograd, data = torch.nn, torch.autograd, torch.utils.data
    t = torch.tensor

    @P
    def a_convolution_with_another_weight():
        m = nn.Conv1d(1, 1, 3, padding="same", padding_mode="reflect", bias=False)
        nn.init.ones_(m.weight)
        return m._conv_forward(torch.arange(5.0)[None, None], m.weight * 2, t([1.0]))

    @P
    def a_class_may_convolve_otherwise():
        class Standardized(nn.Conv2d):
            def _conv_forward(self, input, weight, bias):
                return super()._conv_forward(input, weight - weight.mean(), bias)

        m = Standardized(1, 1, 2, bias=False)
        m.weight.data = torch.arange(4.0).view(1, 1, 2, 2)
        return m(torch.arange(9.0).view(1, 1, 3, 3))

    @P
    def output_padding_of_a_transposed_convolution():
        m = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
        x = torch.zeros(1, 1, 4, 4)
        size = m._output_padding(x, [8, 7], m.stride, m.padding, m.kernel_size, 2, m.dilation)
        return [list(size), list(m(x, output_size=(8, 7)).shape), list(m(x).shape)]

    @P
    def sums_of_lengths():
        both = data.ConcatDataset([range(3), range(4)])
        return [data.ConcatDataset.cumsum([range(2), "abc"]), both.cumulative_sizes, both[4]]

    @P
    def a_global_hook_with_keywords():
        seen = []

        class Scaled(nn.Module):
            def forward(self, x, scale=1):
                return x * scale

        register = nn.modules.module.register_module_forward_hook
        handle = register(lambda m, a, k, out: seen.append((len(a), k, out.item())), with_kwargs=True)
        Scaled()(t(2.0), scale=3)
        handle.remove()
        Scaled()(t(2.0), scale=3)
        return seen

    @P
    def a_handle_clears_what_goes_with_its_hook():
        hooks, extra = OrderedDict(), OrderedDict()
        handle = torch.utils.hooks.RemovableHandle(hooks, extra_dict=extra)
        hooks[handle.id] = extra[handle.id] = 1
        other = torch.utils.hooks.RemovableHandle(hooks, extra_dict=[extra])
        hooks[other.id] = extra[other.id] = 2
        handle.remove()
        return [list(hooks.values()), list(extra.values()), other.id - handle.id]

    @P
    def a_module_compiled_in_place():
        m = nn.Linear(2, 1)
        return [m.compile(backend="eager"), type(m).__name__, list(m(torch.ones(3, 2)).shape)]

    @P
    def synchronised_norm_without_a_shift():
        return [name for name, _ in nn.SyncBatchNorm(2, bias=False).named_parameters()]

    @P
    def autocast_that_is_off_takes_any_dtype():
        with torch.autocast("cpu", dtype=torch.float32, enabled=False):
            return str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)

    @P
    def the_profiler_of_older_programs():
        with autograd.profiler.profile(use_cuda=False) as p:
            torch.ones(2).exp()
        return any(e.key.endswith("exp") for e in p.key_averages(group_by_overload_name=False))

    x = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64, requires_grad=True)

    class Square(autograd.Function):
        slope = 2

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

        @staticmethod
        def jvp(ctx, tangent):
            return Square.slope * ctx.saved_tensors[0] * tangent

    class ByNumbers(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * t(g.tolist(), dtype=torch.float64)

    def checked(**options):
        try:
            return autograd.gradcheck(Square.apply, x, **options)
        except RuntimeError as error:
            return type(error).__name__

    @P
    def gradients_are_checked_in_forward_mode():
        right = [checked(check_forward_ad=True), checked(check_forward_ad=True, check_backward_ad=False)]
        Square.slope = 3
        wrong = [
            checked(),
            checked(check_forward_ad=True),
            checked(check_forward_ad=True, raise_exception=False),
        ]
        Square.slope = 2
        return right, wrong

    @P
    def gradients_are_checked_in_batches():
        found = [
            autograd.gradcheck(torch.sin, x, check_batched_grad=True),
            autograd.gradcheck(ByNumbers.apply, x),
        ]
        try:
            autograd.gradcheck(ByNumbers.apply, x, check_batched_grad=True)
        except RuntimeError as error:
            found.append(type(error).__name__)
        return found

    @P
    def second_derivatives_are_checked_in_forward_mode():
        z = torch.tensor([0.5 + 1j, -1.0], dtype=torch.complex128, requires_grad=True)
        return [
            autograd.gradgradcheck(lambda a: a @ a, x, check_fwd_over_rev=True),
            autograd.gradcheck(lambda a: a * a.conj(), z, check_forward_ad=True, check_batched_grad=True),
        ]

    @P
    def a_check_of_nothing():
        autograd.gradcheck(torch.sin, x, check_backward_ad=False)

    @P
    def a_batch_without_backward():
        autograd.gradcheck(
            torch.sin, x, check_forward_ad=True, check_backward_ad=False, check_batched_grad=True
        )

    @P
    def an_optimizer_around_another():
        seen = []

        class Around(torch.optim.Optimizer):
            def __init__(self, inner):
                self.inner = inner

            def __getattr__(self, name):
                return getattr(self.__dict__["inner"], name)

            def step(self, closure=None):
                return self.inner.step(closure)

        w = t([1.0, 2.0], requires_grad=True)
        inner = torch.optim.SGD([w], lr=0.5)
        register = importlib.import_module(
            torch.__name__ + ".optim.optimizer"
        ).register_optimizer_step_pre_hook
        handle = register(lambda o, args, kwargs: seen.append(type(o).__name__))
        w.square().sum().backward()
        Around(inner).step()
        handle.remove()
        return seen, w

    @P
    def no_tensor_and_no_module_is_in_parts():
        at = torch.__name__ + ".distributed."
        parts = importlib.import_module(at + "tensor").DTensor
        sharded = importlib.import_module(at + "fsdp").FullyShardedDataParallel
        return isinstance(t(1), parts), issubclass(parts, torch.Tensor), isinstance(nn.Linear(1, 1), sharded)

    @P
    def a_node_is_called():
        w = t([1.0, 2.0], requires_grad=True)
        y = 3 * w.square()
        with torch.no_grad():
            return y.grad_fn(t([1.0, 1.0])), [f is None for f, _ in y.grad_fn.next_functions]

    @P
    def an_iterator_of_a_loader():
        it = iter(data.DataLoader(range(5), batch_size=2))
        return type(it).__name__, len(it), next(it), len(list(it)), next(it, None), iter(it) is it

    @P
    def states_of_schedules():
        def state(make):
            w = torch.nn.Parameter(torch.ones(1))
            return list(make(torch.optim.SGD([w], 0.1, momentum=0.9)).state_dict())

        s = torch.optim.lr_scheduler
        return [
            state(lambda o: s.OneCycleLR(o, 0.1, 10)),
            state(lambda o: s.CyclicLR(o, 0.01, 0.1, 2)),
            state(lambda o: s.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False)),
            state(s.ReduceLROnPlateau),
        ]
