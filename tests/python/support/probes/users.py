"""What programs written for PyTorch use beside operators: Tensor's protocols, spellings of calls, hooks,
resuming.
"""

import copy
import io
import warnings

import numpy as np


def probe(torch, P):
    t, nn = torch.tensor, torch.nn
    a = torch.arange(24).reshape(2, 3, 4)

    def error(f):
        """The type of what a call raises: messages name the operator first."""
        try:
            return f()
        except Exception as e:
            return type(e).__name__

    @P
    def a_list_of_sequences_indexes_as_a_tuple():
        return (
            a[[[0, 1], [1, 0]]],
            a[[t([0]), t([1])]],
            a[[slice(0, 1), 2]],
            a[[None, 0]].shape,
            a[[0, 1]].shape,
        )

    @P
    def a_list_of_zero_dimensional_tensors_indexes_as_a_tuple():
        return a[[t(0), t(1)]]

    @P
    def several_ellipses_take_dimensions_once():
        return a[..., 0, ...].shape, a[..., ...].shape

    @P
    def view_reads_bytes_as_another_dtype():
        x = t([1.0, 2.0, -3.0, 4.0])
        return (
            x.view(torch.int32),
            x.view(torch.uint8).shape,
            x.view(torch.float64).shape,
            x.view(dtype=torch.int16).shape,
            t(1.0).view(torch.int32),
        )

    @P
    def view_as_another_dtype_shares_memory():
        x = torch.zeros(2)
        x.view(torch.int32)[0] = 0x3F800000
        return x

    @P
    def view_as_a_wider_dtype_needs_a_divisible_size():
        return error(lambda: t([1.0, 2.0, 3.0]).view(torch.float64))

    @P
    def results_with_names_print_on_lines():
        return repr(t([[1, 5]]).max(1)), repr(torch.sort(t([2, 1])))

    @P
    def sizes_are_no_single_numbers():
        return error(lambda: torch.full(2, 3))

    @P
    def splits_by_pytorchs_keyword():
        return [x.tolist() for x in torch.split(a[0, 0], split_size_or_sections=3)]

    @P
    def a_tensor_contains_numbers_only():
        return 3 in a, t(99) in a, "a" in a

    @P
    def the_device_of_a_tensor_has_no_number():
        return (
            str(torch.zeros(1, device="cpu:0").device),
            torch.zeros(1, device=torch.device("cpu", 0)).device == torch.device("cpu"),
            str(torch.device("cpu:0")),
        )

    @P
    def functions_of_numpy_give_tensors():
        return type(np.sqrt(t([4.0]))).__name__, np.add(t([1, 2]), np.array([1, 2]))

    @P
    def an_array_of_another_byte_order_is_refused():
        return error(lambda: torch.from_numpy(np.arange(3).astype(">i4")))

    @P
    def limits_print_six_digits():
        return repr(torch.finfo(torch.float32)), repr(torch.iinfo(torch.int8))

    @P
    def type_takes_the_makers_of_tensors():
        return str(t([1]).type(torch.DoubleTensor).dtype)

    @P
    def storages_tell_what_is_shared():
        x = torch.arange(6.0)
        return (
            x[2:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr(),
            x[2:].untyped_storage().nbytes(),
            x[4:].storage().tolist(),
            len(x.untyped_storage()),
        )

    @P
    def masks_and_conditions_are_boolean():
        return error(lambda: a.masked_fill(a, 0))

    @P
    def a_condition_of_integers_is_refused():
        return error(lambda: torch.where(t([1, 0]), 1, 2))

    @P
    def integers_have_no_negative_powers():
        return error(lambda: t([2]) ** -1)

    @P
    def floats_have_negative_powers():
        return t([2.0]) ** -1, t([2]) ** -1.0

    @P
    def uniform_numbers_are_no_integers():
        return error(lambda: torch.rand(2, dtype=torch.int64))

    @P
    def random_integers_fit_their_dtype():
        return error(lambda: torch.randint(0, 300, (2,), dtype=torch.uint8))

    @P
    def a_deviation_is_not_negative():
        return torch.normal(0.0, -1.0, (2,))

    @P
    def bernoulli_takes_one_probability():
        return t([0.3, 0.3]).bernoulli(1.0), torch.bernoulli(t([0.3, 0.3]), 0.0), t([0.0]).bernoulli(p=1.0)

    @P
    def probabilities_lie_between_0_and_1():
        return [
            error(lambda x=x: torch.bernoulli(t([0.5, x]))) for x in (2.0, -1.0, float("nan"))
        ], torch.bernoulli(torch.zeros(0)).shape

    @P
    def flip_refuses_a_dimension_twice():
        return error(lambda: a.flip(0, 0))

    @P
    def einsum_takes_lists_of_dimensions():
        return torch.einsum(a[0], [0, 1], a[1], [2, 1], [0, 2]), torch.einsum(a, [..., 0], [..., 0]).shape

    def expanded(write):
        x = torch.zeros(2, 1, 3).expand(2, 4, 3)
        write(x)
        return x[:, 0]

    @P
    def masked_fill_writes_expanded_tensors():
        mask = torch.zeros(2, 4, 3, dtype=torch.bool)
        mask[0, 1, 0] = mask[1, 3, 2] = True
        return expanded(lambda x: x.masked_fill_(mask, 7))

    @P
    def index_fill_writes_expanded_tensors():
        return expanded(lambda x: x.index_fill_(2, t([0, 2]), 5))

    @P
    def index_put_writes_expanded_tensors():
        def write(x):
            x[t([1]), t([2])] = t([1.0, 2.0, 3.0])

        return expanded(write)

    @P
    def triangles_are_cut_of_expanded_tensors():
        return (
            torch.ones(1, 3).expand(3, 3).tril_(),
            torch.ones(1, 3).expand(3, 3).triu_(1),
            torch.ones(3, 1).expand(3, 3).tril_(-1),
        )

    @P
    def norms_of_matrices():
        m = t([[1.0, -2.0], [3.0, 4.0]])
        n = torch.linalg
        return [
            n.norm(m),
            n.norm(m, "fro"),
            n.norm(m, 1),
            n.norm(m, -1),
            n.norm(m, float("inf")),
            n.norm(m, float("-inf")),
            n.norm(m, dim=1),
            n.norm(m[0], 3),
            n.matrix_norm(m, keepdim=True).shape,
        ]

    # ---- gradients

    @P
    def batched_gradients():
        x = t([1.0, 2.0], requires_grad=True)
        return torch.autograd.grad(x * x, x, torch.eye(2), is_grads_batched=True)[0]

    @P
    def missing_gradients_are_zeros():
        x, y = t([1.0], requires_grad=True), t([1.0], requires_grad=True)
        g = torch.autograd.grad(x.sum(), y, allow_unused=True, materialize_grads=True)[0]
        return g, g.requires_grad

    @P
    def modes_decorate_classes():
        @torch.no_grad()
        class Made:
            def __init__(self):
                self.recorded = torch.is_grad_enabled()

        return Made().recorded, torch.is_grad_enabled()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x, k=3.0):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k, ctx.count = inputs[1], len(inputs)

        @staticmethod
        def backward(ctx, g):
            return (g * ctx.k,) + (None,) * (ctx.count - 1)

    @P
    def functions_see_their_defaults():
        x = t([1.0], requires_grad=True)
        (Scaled.apply(x) + Scaled.apply(x, k=5.0)).backward()
        return x.grad

    @P
    def functions_are_applied_not_called():
        return Scaled()(t([1.0]))

    @P
    def saved_tensors_may_be_written():
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            x = t([2.0], requires_grad=True)
            y = x.clone()
            z = y * y
            y.mul_(3)
            z.sum().backward()
        return x.grad

    @P
    def anomaly_detection_can_be_asked():
        with torch.autograd.set_detect_anomaly(True):
            inside = torch.is_anomaly_enabled()
        return inside, torch.is_anomaly_enabled()

    @P
    def the_gradient_of_a_result_is_not_kept():
        y = t([1.0], requires_grad=True) * 2
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            first = y.grad
            y.retain_grad()
            y.sum().backward()
        return first, [w.category.__name__ for w in seen], y.grad

    @P
    def a_leaf_is_not_written_by_a_function():
        class Written(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x.add_(1)
                ctx.mark_dirty(x)
                return x

            @staticmethod
            def backward(ctx, g):
                return g * 2

        x = t([1.0], requires_grad=True)
        y = x * 1
        Written.apply(y).sum().backward()
        return x.grad, error(lambda: Written.apply(x))

    # ---- training

    @P
    def parameters_keep_their_class():
        class Mine(torch.Tensor):
            pass

        p = nn.Parameter(torch.ones(2).as_subclass(Mine), requires_grad=False)
        m = nn.Module()
        m.p = p
        return (
            type(p).__name__,
            isinstance(p, nn.Parameter),
            p.requires_grad,
            [n for n, _ in m.named_parameters()],
            type(p + 1).__name__,
        )

    @P
    def autocast_of_a_missing_device_changes_nothing():
        x = torch.ones(2, 2)
        with torch.autocast("cuda", dtype=torch.float16):
            return str((x @ x).dtype)

    @P
    def autocast_of_a_missing_device_leaves_the_cpu_alone():
        x = torch.ones(2, 2)
        with torch.autocast("cpu"), torch.autocast("cuda"):
            return str((x @ x).dtype)

    @P
    def autocast_of_no_device_is_refused():
        return error(lambda: torch.autocast("foo"))

    @P
    def a_scaler_that_is_off_steps():
        p = nn.Parameter(t([1.0]))
        o = torch.optim.SGD([p], lr=0.5)
        for scaler in (torch.amp.GradScaler("cpu", enabled=False), torch.cuda.amp.GradScaler()):
            p.grad = None
            scaler.scale((p * 2).sum()).backward()
            scaler.unscale_(o)
            scaler.step(o)
            scaler.update()
        return p, scaler.get_scale(), scaler.is_enabled(), scaler.state_dict()

    @P
    def a_scaler_scales_and_skips():
        p = nn.Parameter(t([1.0]))
        o = torch.optim.SGD([p], lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        seen = []
        for k, factor in enumerate((2.0, float("inf"), 1.0, 1.0, 1.0)):
            p.grad = None
            scaler.scale((p * factor).sum()).backward()
            if k == 0:
                scaler.unscale_(o)
                seen.append(p.grad.item())
            scaler.step(o)
            scaler.update()
            seen += [p.item(), scaler.get_scale()]
        return seen, scaler.state_dict()

    @P
    def a_scaler_unscales_once():
        p = nn.Parameter(t([1.0]))
        o = torch.optim.SGD([p], lr=0.5)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(p.sum()).backward()
        scaler.unscale_(o)
        scaler.unscale_(o)

    s = torch.optim.lr_scheduler
    schedules = [
        lambda o: s.StepLR(o, 2, last_epoch=2),
        lambda o: s.MultiStepLR(o, [3, 5], last_epoch=2),
        lambda o: s.ExponentialLR(o, 0.9, last_epoch=2),
        lambda o: s.CosineAnnealingLR(o, 8, last_epoch=2),
        lambda o: s.LinearLR(o, 0.5, last_epoch=2),
        lambda o: s.ConstantLR(o, 0.5, 4, last_epoch=2),
        lambda o: s.PolynomialLR(o, 6, last_epoch=2),
        lambda o: s.LambdaLR(o, lambda e: 0.9**e, last_epoch=2),
        lambda o: s.MultiplicativeLR(o, lambda e: 0.9, last_epoch=2),
        lambda o: s.CosineAnnealingWarmRestarts(o, 4, last_epoch=2),
    ]

    @P
    def schedules_resume_where_the_rates_are():
        seen = []
        for make in schedules:
            o = torch.optim.SGD([{"params": [nn.Parameter(t([1.0]))], "initial_lr": 0.8}], lr=0.3)
            schedule = make(o)
            rates = [o.param_groups[0]["lr"]]
            for _ in range(4):
                o.step()
                schedule.step()
                rates.append(round(o.param_groups[0]["lr"], 6))
            seen.append(rates)
        return seen

    @P
    def schedules_keep_the_same_state():
        o = torch.optim.SGD([nn.Parameter(t([1.0]))], lr=0.8)
        return sorted(s.StepLR(o, 2).state_dict()), sorted(s.CosineAnnealingLR(o, 2).state_dict())

    @P
    def get_lr_outside_of_a_step_warns():
        schedule = s.StepLR(torch.optim.SGD([nn.Parameter(t([1.0]))], lr=0.8), 2)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            schedule.get_lr()
            schedule.get_last_lr()
        return [w.category.__name__ for w in seen]

    @P
    def hooks_of_optimizers_see_the_optimizer():
        from importlib import import_module

        hooks = import_module(torch.__name__ + ".optim.optimizer")
        before, after = hooks.register_optimizer_step_pre_hook, hooks.register_optimizer_step_post_hook
        seen = []
        o = torch.optim.SGD([nn.Parameter(t([1.0]))], lr=0.8)
        o.register_step_pre_hook(lambda opt, args, kwargs: seen.append(("own", args[0] is o, len(args))))
        handles = before(lambda *_: seen.append("before")), after(lambda *_: seen.append("after"))
        o.step()
        for h in handles:
            h.remove()
        o.step()
        return seen

    # ---- data

    @P
    def loaders_keep_what_they_were_made_with():
        loader = torch.utils.data.DataLoader([1, 2, 3], batch_size=2)
        loader.batch_size = 3

    @P
    def pinning_without_a_device_warns():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            list(torch.utils.data.DataLoader([1], pin_memory=True))
        return [w.category.__name__ for w in seen]

    @P
    def nothing_cannot_be_shuffled():
        return torch.utils.data.RandomSampler([])

    @P
    def samplers_of_processes_share_the_indices():
        from importlib import import_module

        make = import_module(torch.__name__ + ".utils.data.distributed").DistributedSampler
        parts = [list(make(range(7), 3, k, shuffle=False)) for k in range(3)]
        shuffled = sorted(i for k in range(3) for i in make(range(9), 3, k, seed=4))
        return parts, shuffled, [len(make(range(7), 3, 0, drop_last=d)) for d in (False, True)]

    @P
    def other_places_of_names():
        from importlib import import_module

        found = []
        names = """
            random.fork_rng utils.dlpack.from_dlpack utils.data.dataloader.default_collate
            utils.data._utils.collate.default_collate nn.common_types._size_2_t compiler.is_compiling
            get_default_device set_default_device set_default_tensor_type Tensor._make_subclass
            cuda.amp.autocast
        """
        for name in names.split():
            module, _, what = f"{torch.__name__}.{name}".rpartition(".")
            owner = torch.Tensor if name.startswith("Tensor.") else import_module(module)
            found.append(hasattr(owner, what))
        return found

    @P
    def a_device_is_a_context():
        with torch.device("cpu"):
            return str(torch.ones(1).device), str(torch.get_default_device())

    @P
    def compiled_programs_give_the_same():
        @torch.compiler.disable
        def f(x):
            return x + 1

        return f(t([1.0])), torch.compiler.is_compiling()

    @P
    def copies_of_views_share_as_their_sources_do():
        x = torch.arange(6.0)
        y, z = copy.deepcopy([x[:3], x[3:]])
        return y.untyped_storage().data_ptr() == z.untyped_storage().data_ptr(), y, z

    @P
    def tensors_of_one_element_are_numbers_in_lists():
        return torch.tensor([torch.ones(1), torch.zeros(1, 1), t(2.0)]), torch.tensor([[t([3]), 4]])

    @P
    def a_view_that_asks_for_gradients_later_is_a_leaf_to_its_views():
        x = torch.zeros(4).view(2, 2).requires_grad_()
        return (
            error(lambda: x[0].add_(1)),
            error(lambda: x.view(4).zero_()),
            error(lambda: x.detach()[0].add_(1)),
        )

    @P
    def grad_takes_the_arguments_of_gradient_penalties():
        x = t([1.0, 2.0], requires_grad=True)
        return torch.autograd.grad(
            outputs=x**3,
            inputs=x,
            grad_outputs=torch.ones(2),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )

    @P
    def sequences_are_padded_on_either_side():
        pad = torch.nn.utils.rnn.pad_sequence
        s = [t([1, 2, 3]), t([4]), t([5, 6])]
        return (
            pad(s),
            pad(s, batch_first=True, padding_value=9),
            pad(s, True, padding_side="left"),
            pad([torch.ones(2, 2), torch.ones(1, 2)], True),
            torch.nn.utils.rnn.unpad_sequence(pad(s), t([3, 1, 2])),
            [error(lambda s=s: pad(s)) for s in ([], 5, [5], [torch.ones(2, 3), torch.ones(2, 4)])],
        )

    @P
    def intervals_far_from_the_mean_are_drawn_at_once():
        x = torch.nn.init.trunc_normal_(torch.empty(1000), a=2.0, b=3.0)
        return bool((x >= 2).all()), bool((x <= 3).all()), bool(x.mean() < 2.5)

    @P
    def modes_take_truth_values_only():
        return [error(lambda v=v: torch.set_grad_enabled(v)) for v in ("a", 1, None)]

    @P
    def a_compiled_module_wraps_the_module():
        model = nn.Sequential(nn.Linear(2, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(model, backend="eager")
        model.extra = 3
        compiled.more = 4
        compiled.eval()
        again = copy.deepcopy(compiled)
        return (
            type(compiled).__name__,
            isinstance(compiled, nn.Module),
            list(compiled.state_dict()),
            [n for n, _ in compiled.named_parameters()],
            compiled._orig_mod is model,
            (compiled.extra, model.more, model.training, compiled.training, len(again.state_dict())),
            again._orig_mod is model,
            error(lambda: compiled.absent),
            error(lambda: compiled.load_state_dict(model.state_dict())),
            str(compiled.load_state_dict({f"_orig_mod.{k}": v for k, v in model.state_dict().items()})),
            isinstance(compiled, torch._dynamo.eval_frame.OptimizedModule),
        )

    @P
    def the_class_of_a_node_is_named_as_the_node():
        x = torch.ones(2, requires_grad=True)
        y = (x * x).exp().sum()
        names = []
        node = y.grad_fn
        while node is not None:
            names.append((type(node).__name__, repr(node).split()[0]))
            node = node.next_functions[0][0] if node.next_functions else None
        return (
            names,
            isinstance(y.grad_fn, torch.autograd.graph.Node),
            type(y.grad_fn) is type(x.sum().grad_fn),
        )

    @P
    def states_of_other_sizes_are_named_by_their_sizes():
        try:
            nn.Linear(3, 2).load_state_dict(nn.Linear(4, 2).state_dict())
        except RuntimeError as e:
            return str(e).splitlines()[1]

    @P
    def a_scaler_of_an_optimizer_without_gradients_unscales_nothing():
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        return (
            scaler.unscale_(optimizer),
            error(lambda: scaler.unscale_(optimizer)),
            error(lambda: scaler.step(optimizer)),
            error(scaler.update),
        )

    @P
    def old_names_of_sparse_products():
        m = torch.eye(2).to_sparse()
        return (
            torch.spmm(m, torch.ones(2, 2)),
            torch.dsmm(m, t([[1.0], [2.0]])),
            torch.spmm(torch.eye(2), torch.eye(2)),
        )

    @P
    def a_singular_matrix_is_caught_by_the_private_name():
        try:
            torch.linalg.inv(torch.zeros(2, 2))
        except torch._C._LinAlgError:
            return True

    @P
    def the_first_line_of_a_wrong_jacobian():
        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g

        try:
            torch.autograd.gradcheck(Wrong.apply, torch.ones(2, dtype=torch.float64, requires_grad=True))
        except RuntimeError as e:
            return str(e).splitlines()[0]

    @P
    def weight_norm_by_hooks_is_deprecated():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nn.utils.weight_norm(nn.Linear(2, 2))
        return [(str(w.message), w.category.__name__) for w in caught]

    @P
    def a_file_is_read_to_meta():
        file = io.BytesIO()
        torch.save({"a": torch.arange(6.0).view(2, 3).t(), "n": 3}, file)
        answers = []
        for place in ("meta", torch.device("meta"), {"cpu": "meta"}):
            file.seek(0)
            read = torch.load(file, map_location=place)
            answers.append((read["a"].device.type, tuple(read["a"].shape), read["a"].stride(), read["n"]))
        return answers
