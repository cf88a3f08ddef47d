"""Lets the peer import torchvision, whose shared library is built for the peer's GPU build and does not load
beside its CPU build: torchvision describes its operators nms and qnms even then, and the peer has to know of
them.

In this folder because Python imports a module of this name when it starts.
"""

import importlib.abc
import sys


class DeclareNms(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            declared.append(library)  # an operator lives as long as its library
            for name in ("nms", "qnms"):
                library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


declared = []
sys.meta_path.insert(0, DeclareNms())
