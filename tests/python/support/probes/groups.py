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
