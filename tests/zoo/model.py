"""One published model, built and trained for three steps by whatever `import torch` gives.

    python model.py LIBRARY NAME WEIGHTS RESULTS [--seed 0] [--write-weights] [--float64 [--nudge N]]
        [--compiled]

WEIGHTS is a checkpoint of the model's first state: written, or read in place of the library's random one.
NAME may end in " size=N": images of N x N pixels in place of the model's own size.
--nudge N changes weights and images by at most half a unit of float32's last place, in the Nth such draw.
RESULTS (.npz) has the outputs and gradients of the first step, the losses, and what a step took.
"""

import argparse
import os
import resource
import sys
import time

import numpy as np
import torch

THREADS = 2
SAMPLE = 100_000  # elements of a gradient that are kept
LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers num_decoder_layers encoder_layers decoder_layers".split()
)


def without_dropout(values):
    """A configuration's probabilities, all 0."""
    return {k: 0.0 for k, v in values.items() if "drop" in k and isinstance(v, (int, float))}


def timm_model(name, random):
    import timm

    name, _, size = name.partition(" size=")
    overlay = {"input_size": (3, int(size), int(size))} if size else None
    model = timm.create_model(name, num_classes=10, pretrained_cfg_overlay=overlay)
    _, height, width = model.default_cfg["input_size"]
    images = random.standard_normal((2, 3, height, width))
    labels = torch.tensor([3, 7])

    def outputs():
        y = model(inputs[0])
        return (y[0] if isinstance(y, tuple) else y), None

    inputs = [torch.from_numpy(images.astype(np.float32))]
    return model, inputs, lambda y, loss: torch.nn.functional.cross_entropy(y, labels), outputs


def transformers_model(name, random):
    import transformers

    cls = getattr(transformers, name)
    config = cls.config_class()
    for key in LAYERS:
        if key in vars(config):
            setattr(config, key, 2)
    for key, value in without_dropout(config.to_dict()).items():
        setattr(config, key, value)
    config.vocab_size = min(config.vocab_size, 1000)
    config.pad_token_id = min(config.pad_token_id or 0, 999)
    config.use_cache = False
    if config.is_encoder_decoder and config.decoder_start_token_id is None:
        config.decoder_start_token_id = config.pad_token_id
    if name.endswith("CausalLM") and hasattr(config, "is_decoder"):
        config.is_decoder = True
    model = cls(config)
    ids = torch.from_numpy(random.randint(5, config.vocab_size, (2, 32)))
    given = {"input_ids": ids}
    if name.endswith("QuestionAnswering"):
        given |= {"start_positions": torch.tensor([3, 5]), "end_positions": torch.tensor([9, 31])}
    elif name.endswith("SequenceClassification"):
        given["labels"] = torch.tensor([0, 1])
    else:
        given["labels"] = ids

    def outputs():
        out = model(**given)
        y = out.logits if hasattr(out, "logits") else out.start_logits
        return y, out.loss

    return model, [], lambda y, loss: loss, outputs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("name")
    parser.add_argument("weights")
    parser.add_argument("results")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--write-weights", action="store_true")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--nudge", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="the model, by Module.compile()")
    a = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model, inputs, loss_of, outputs = globals()[a.library + "_model"](a.name, np.random.RandomState(a.seed))
    if a.write_weights:
        torch.save(model.state_dict(), a.weights)
    else:
        model.load_state_dict(torch.load(a.weights))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "drop_rate", "drop_prob"):  # of functional dropout, of whole branches
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.train()
    if a.float64:
        model.double()
        inputs[:] = [x.double() for x in inputs]
    if a.nudge:
        torch.manual_seed(a.nudge)
        with torch.no_grad():
            for x in [*model.parameters(), *inputs]:
                x.mul_(1 + (torch.rand_like(x) - 0.5) * 2**-23)
    if a.compiled:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    kept, losses, seconds = {}, [], []
    for step in range(3):
        started, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        y, loss = outputs()
        loss = loss_of(y, loss)
        loss.backward()
        if step == 0:
            kept["output"] = y.detach().double().numpy()
            for k, (name, p) in enumerate(model.named_parameters()):
                if p.grad is not None:
                    g = p.grad.detach().reshape(-1)
                    kept[f"gradient {k} {name}"] = g[:: max(1, g.numel() // SAMPLE)].double().numpy()
        optimizer.step()
        losses.append(loss.item())
        seconds.append([time.perf_counter() - started, time.process_time() - cpu])
    if a.compiled:
        report = model.forward.report()
        calls = [s["calls"] for s in report["segments"]]
        breaks = sorted(
            {f"{os.path.basename(file)}:{line}: {why}" for file, line, why, _ in report["breaks"]}
        )
        kept["breaks"], kept["calls"] = np.array(breaks, dtype=str), np.array(calls)
        kept["captures"] = np.array([report["captures"], report["plain_runs"]])
    kept["losses"], kept["seconds"] = np.array(losses), np.array(seconds)
    kept["memory"] = np.array(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    np.savez(a.results, **kept)
    print(f"{a.library} {a.name}: losses {losses}", os.path.basename(sys.executable))


if __name__ == "__main__":
    main()
