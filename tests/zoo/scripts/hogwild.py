"""Several processes and threads: shared models trained by Hogwild, queues and pipes of tensors, pools, a launcher of one process."""

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return F.log_softmax(self.fc2(torch.tanh(self.fc1(x))), dim=1)


def fixed(model):
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32) + k).view_as(p) * 0.5)
    return model


def data(n=64):
    x = torch.cos(torch.arange(n * 4, dtype=torch.float32) * 0.7).view(n, 4)
    return TensorDataset(x, (x.sum(1) > 0).long())


def train(rank, model, lock, counter, epochs=3):
    torch.manual_seed(1 + rank)
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    for epoch in range(epochs):
        for x, y in DataLoader(data(), batch_size=16):
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            with lock:
                counter += 1


def produce(queue, done):
    for k in range(3):
        queue.put((k, torch.full((2, 2), float(k)), {"name": f"item {k}"}))
    queue.put(None)
    done.wait()


def serve(pipe, alone, part):
    alone[0], part[0] = 7, 8
    while True:
        message = pipe.recv()
        if message is None:
            break
        name, tensor = message
        pipe.send({"square": torch.square, "sum": torch.sum}[name](tensor))
    pipe.close()


def norm(pair):
    return torch.linalg.vector_norm(pair[0] - pair[1]).item()


def fails(rank):
    if rank == 1:
        raise ValueError("no luck")


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


LAUNCHED = """
import os
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group(backend="gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    local = int(os.environ["LOCAL_RANK"])
    t = torch.ones(2) * (rank + 1)
    work = dist.all_reduce(t, op=dist.ReduceOp.SUM, async_op=True)
    work.wait()
    print("launched", rank, world, local, t.tolist(), os.environ["LOCAL_WORLD_SIZE"], dist.get_backend())
    gathered = [None for _ in range(world)]
    dist.all_gather_object(gathered, {"rank": rank})
    print(gathered, dist.get_node_local_rank(), dist.is_torchelastic_launched())
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def main():
    mp.set_start_method("spawn", force=True)
    print(mp.get_start_method(), mp.get_sharing_strategy() in mp.get_all_sharing_strategies())
    model = fixed(Net())
    model.share_memory()
    alone, whole = torch.zeros(3), torch.arange(6.0)
    print("shared", all(p.is_shared() for p in model.parameters()), torch.ones(2).is_shared())
    counter = torch.zeros(1, dtype=torch.int64).share_memory_()
    lock = mp.Lock()
    x, y = data().tensors
    before = F.nll_loss(model(x), y).item()
    processes = [mp.Process(target=train, args=(rank, model, lock, counter)) for rank in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    after = F.nll_loss(model(x), y).item()
    print("hogwild", counter.item(), after < 0.9 * before, [p.exitcode for p in processes])

    queue, done = mp.Queue(), mp.Event()
    producer = mp.Process(target=produce, args=(queue, done))
    producer.start()
    while (item := queue.get()) is not None:
        print(item[0], item[1].sum(), item[2])
    done.set()
    producer.join()
    ours, theirs = mp.Pipe()
    server = mp.Process(target=serve, args=(theirs, alone, whole[2:]), daemon=True)
    server.start()
    for name in ("square", "sum"):
        ours.send((name, torch.arange(3.0)))
        print(name, ours.recv())
    ours.send(None)
    server.join()
    print(alone, alone.is_shared())
    with mp.Pool(2) as pool:
        pairs = [(torch.full((3,), float(k)), torch.zeros(3)) for k in range(4)]
        print("pool", [round(v, 4) for v in pool.map(norm, pairs)], pool.apply(norm, (pairs[2],)))
    try:
        mp.spawn(fails, nprocs=2, join=True)
    except mp.ProcessRaisedException as e:
        print("raised", e.error_index, "ValueError: no luck" in str(e))

    # Threads: gradients of each, modes of each.
    grads, modes = {}, {}

    def work(k):
        w = torch.full((2,), float(k), requires_grad=True)
        with torch.no_grad() if k % 2 else torch.enable_grad():
            time.sleep(0.01)
            modes[k] = torch.is_grad_enabled()
        Flat.apply(w * w).sum().backward()
        grads[k] = w.grad[0].item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(sorted(grads.items()), sorted(modes.items()), torch.is_grad_enabled())
    shared = fixed(Net())
    with ThreadPoolExecutor(3) as pool:
        losses = list(pool.map(lambda k: F.nll_loss(shared(x[k::3]), y[k::3]), range(3)))
    sum(losses).backward()
    print(f"threads {sum(losses):.5f} {shared.fc1.weight.grad.norm():.5f}")
    futures = [torch.jit.fork(torch.mul, torch.tensor(float(k)), 2) for k in range(3)]
    print([torch.jit.wait(f).item() for f in futures])

    # One process of a group: stores, samplers, wrapped modules, points to save.
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    store.set("epoch", "3")
    print(store.get("epoch"), store.add("steps", 5), store.check(["nothing"]), store.delete_key("epoch"))
    dist.init_process_group("gloo", store=dist.PrefixStore("run", store), rank=0, world_size=1)
    mesh = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    print(mesh["dp"].size(), mesh.get_local_rank(), dist.get_process_group_ranks(mesh.get_group()))
    sampler = DistributedSampler(data(), shuffle=False)
    loader = DataLoader(data(), batch_size=16, sampler=sampler, num_workers=1, persistent_workers=True)
    ddp = DDP(fixed(Net()), broadcast_buffers=False, find_unused_parameters=True)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt")
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for step, (xb, yb) in enumerate(loader):
                if step % 2 == 0:
                    with ddp.no_sync():
                        F.nll_loss(ddp(xb), yb).backward()
                    continue
                loss = F.nll_loss(ddp(xb), yb)
                loss.backward()
                nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            total = torch.tensor([loss.item(), len(xb)])
            dist.all_reduce(total)
            print(f"ddp {epoch} {total[0]:.4f} {total[1]:.0f}")
            if dist.get_rank() == 0:
                torch.save(ddp.state_dict(), path)
            dist.barrier()
        state = torch.load(path, map_location={"cuda:0": "cpu"}, weights_only=True)
        print(list(state)[:2], ddp.load_state_dict(state))
        plain = Net()
        nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
        print(plain.load_state_dict(state), torch.equal(plain(x), ddp(x)))
        for bad in (
            lambda: dist.send(x, dst=0),
            lambda: dist.init_process_group("gloo"),
            lambda: dist.new_subgroups(2),
        ):
            try:
                bad()
            except Exception as e:
                print(type(e).__name__)
        dist.destroy_process_group()
        file = dist.FileStore(os.path.join(folder, "store"), 1)
        file.set("a", "b")
        print(file.get("a"), file.compare_set("a", "b", "c"), dist.HashStore().add("n", 2))
        script = os.path.join(folder, "launched.py")
        with open(script, "w") as f:
            f.write(textwrap.dedent(LAUNCHED))
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=1",
            script,
        ]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        print(printed.strip())


if __name__ == "__main__":
    main()
