"""Process groups of one: what is refused, and by which type of error; quantisation schemes; Jacobians."""

import copy
import pickle


def probe(torch, P):
    dist = torch.distributed

    def kinds(*calls):
        """The types of errors, "done" where there is none."""
        found = []
        for call in calls:
            try:
                call()
                found.append("done")
            except Exception as e:
                found.append(type(e).__name__)
        return found

    @P
    def reductions():
        op, kept = dist.ReduceOp, pickle.loads(pickle.dumps(dist.ReduceOp.MAX))
        same = (kept == op.MAX, op(op.SUM) == op.SUM, op.SUM == op.AVG, isinstance(op.SUM, op), int(op.BXOR))
        return repr(op.SUM), str(op.PREMUL_SUM), [m.name for m in op.RedOpType.__members__.values()], same

    @P
    def without_a_group():
        x = torch.ones(2)
        return kinds(
            lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)),
            lambda: dist.all_reduce(x),
            dist.get_rank,
            dist.get_backend,
            dist.barrier,
            dist.new_group,
            dist.destroy_process_group,
        )

    @P
    def backends():
        def begin(backend):
            dist.init_process_group(backend, store=dist.HashStore(), world_size=1, rank=0)
            said = dist.get_backend()
            dist.destroy_process_group()
            return said

        refused = kinds(
            *(lambda b=b: begin(b) for b in ("foo", "", 3, "nccl", "mpi", "cpu:foo", "cpu:gloo,cuda:nccl"))
        )
        return (
            refused,
            [begin(b) for b in ("gloo", "GLOO", "cpu:gloo", "cpu:gloo,cuda:gloo")],
            dist.is_initialized(),
        )

    @P
    def collectives():
        x, op = torch.ones(2), dist.ReduceOp
        dist.init_process_group("gloo", store=dist.HashStore(), world_size=1, rank=0)
        try:
            return kinds(
                lambda: dist.init_process_group("gloo"),
                lambda: dist.all_reduce(x, op.AVG),
                lambda: dist.all_reduce([1]),
                lambda: dist.all_reduce(x, 3),
                lambda: dist.all_reduce(x, "sum"),
                lambda: dist.all_reduce(x, op.BAND),
                lambda: dist.all_reduce(x.int(), op.BAND),
                lambda: dist.all_reduce(x.int(), op.AVG),
                lambda: dist.all_reduce(x.to(torch.complex64), op.MAX),
                lambda: dist.all_reduce(x.to(torch.complex64)),
                lambda: dist.reduce(x, 1),
                lambda: dist.broadcast(x, 1),
                lambda: dist.broadcast(x),
                lambda: dist.all_gather([torch.zeros(3)], x),
                lambda: dist.all_gather([], x),
                lambda: dist.gather(x, None, 0),
                lambda: dist.scatter(x, [torch.ones(3)], 0),
                lambda: dist.new_group([1]),
                lambda: dist.new_group([0, 0]),
                lambda: dist.new_group(backend="foo"),
                lambda: dist.get_rank(3),
                lambda: dist.destroy_process_group(3),
                lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), device_ids=[0]),
                lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.ReLU()),
            )
        finally:
            dist.destroy_process_group()

    @P
    def schemes():
        names = "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric".split()
        shown = [repr(getattr(torch, n)) for n in names]
        one = torch.per_tensor_affine
        same = pickle.loads(pickle.dumps(one)) is one and copy.deepcopy(one) is one
        return shown, same, isinstance(one, torch.qscheme), kinds(torch.qscheme)

    @P
    def jacobians_of_numbers():
        """Functions of numbers have Jacobians without dimensions, also in a batch."""
        f, g = torch.func, lambda x, u: (x * x).sum() * u
        x, u = torch.arange(6.0).view(2, 3), torch.tensor([2.0, 3.0])
        both = torch.vmap(f.jacrev(g, argnums=(0, 1)))(x, u)
        third = torch.autograd.functional.jacobian(lambda t: t**3, torch.tensor(2.0))
        return (
            both,
            third,
            f.hessian(lambda t: t**3)(torch.tensor(2.0)),
            f.jacfwd(lambda t: t**2)(torch.tensor(3.0)),
        )

    @P
    def jacobians_of_complex_functions():
        """Half of a complex derivative would be a wrong one."""
        f, af, x, z = torch.func, torch.autograd.functional, torch.tensor(2.0), torch.tensor(1 + 1j)

        def wide(t):
            return torch.complex(t, 2 * t)

        return kinds(
            lambda: f.jacrev(wide)(x),
            lambda: f.jacfwd(wide)(x),
            lambda: f.grad(wide)(x),
            lambda: torch.vmap(f.grad(wide))(torch.stack([x, x])),
            lambda: f.jacrev(lambda t: (t * t.conj()).real)(z),
            lambda: f.jacfwd(lambda t: (t * t.conj()).real)(z),
            lambda: f.jvp(wide, (x,), (x,)),
            lambda: af.jacobian(wide, x),
            lambda: af.hessian(wide, x),
            lambda: af.vjp(wide, x),
            lambda: af.vjp(wide, x, wide(x)),
            lambda: af.hvp(wide, x, x),
            lambda: af.vhp(wide, x, x),
        )

    @P
    def jacobians_without_elements():
        f, x = torch.func, torch.ones(0)
        found = (
            f.jacfwd(lambda t: t**3)(x),
            f.jacfwd(lambda t: torch.ones(2))(x),
            f.hessian(lambda t: t.sum())(x),
        )
        many = torch.vmap(f.jacfwd(lambda t: t * 2))(torch.ones(2, 0))
        return [tuple(t.shape) for t in found], tuple(many.shape)

    @P
    def what_else_a_function_gives():
        """Is off the tape, as its derivative is."""
        f, x = torch.func, torch.tensor([1.0, 2.0])

        def both(t):
            return (t * t).sum(), {"kept": t * 3}

        aux = [
            f.grad(both, has_aux=True)(x)[1],
            f.vjp(both, x, has_aux=True)[2],
            f.jvp(both, (x,), (x,), has_aux=True)[2],
        ]
        aux += [
            f.jacrev(both, has_aux=True)(x)[1],
            f.jacfwd(both, has_aux=True)(x)[1],
            f.grad_and_value(both, has_aux=True)(x)[1][1],
        ]
        wrong = kinds(*(lambda g=g: g(torch.sum, has_aux=True)(x) for g in (f.grad, f.jacrev, f.jacfwd)))
        return [(a["kept"].requires_grad, a["kept"].tolist()) for a in aux], wrong
