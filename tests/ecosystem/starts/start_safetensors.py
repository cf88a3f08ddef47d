"""Tensors written to a file and read in parts."""

import torch
from made import data, show
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

tensors = {"a": data(3, 4), "b": data(2).to(torch.bfloat16), "c": torch.arange(5), "d": data(2, 2) > 0}
save_file(tensors, "t.safetensors", metadata={"made": "here"})
for name, t in load_file("t.safetensors").items():
    show(f"{name} {t.dtype}", t.float())
with safe_open("t.safetensors", framework="pt", device="cpu") as f:
    show("metadata", f.metadata())
    show("part", f.get_slice("a")[1:, ::2] if False else f.get_slice("a")[1:, :2])
show("bytes", load(save({"x": data(2)}))["x"])
model = torch.nn.Linear(2, 2)
save_model(model, "m.safetensors")
show("model", [len(x) for x in load_model(model, "m.safetensors")])
