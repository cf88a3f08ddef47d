"""Data sets of local files: folders of images by class, MNIST and similar sets, CIFAR."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from .._absent import naming
from ..transforms.functional import to_pil_image

__getattr__ = naming(__name__)

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def default_loader(path: str) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


class VisionDataset(Dataset):
    def __init__(
        self,
        root: Any,
        transforms: Callable | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
    ) -> None:
        self.root = os.path.expanduser(os.fspath(root))
        self.transforms, self.transform, self.target_transform = transforms, transform, target_transform

    def _item(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transforms is not None:
            return self.transforms(image, target)
        return (
            image if self.transform is None else self.transform(image),
            target if self.target_transform is None else self.target_transform(target),
        )


class DatasetFolder(VisionDataset):
    """Files in a folder for each class, ``root/class/**/file``.

    Raises FileNotFoundError for a class without files.
    """

    def __init__(
        self,
        root: Any,
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        valid = is_valid_file or (lambda path: path.lower().endswith(extensions or ()))
        self.loader, self.extensions = loader, extensions
        self.classes = sorted(e.name for e in os.scandir(self.root) if e.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {self.root}.")
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (str(path), i)
            for name, i in self.class_to_idx.items()
            for path in sorted(Path(self.root, name).rglob("*"))
            if path.is_file() and valid(str(path))
        ]
        self.imgs, self.targets = self.samples, [i for _, i in self.samples]
        empty = sorted(set(self.classes) - {self.classes[i] for i in self.targets})
        if empty and not allow_empty:
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._item(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    def __init__(
        self,
        root: Any,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = None if is_valid_file else IMG_EXTENSIONS
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)


class _Arrays(VisionDataset):
    """Images and labels in memory; ``_read`` reads them from ``root``."""

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        try:
            self.data, self.targets = self._read()
        except FileNotFoundError as e:
            also = " (nothing is downloaded)" if download else ""
            raise RuntimeError(
                f"{type(self).__name__}: Dataset not found: {e.filename} is missing{also}"
            ) from None

    def _read(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._item(Image.fromarray(np.asarray(self.data[index])), int(self.targets[index]))


class MNIST(_Arrays):
    """Files in LeCun's IDX format, optionally gzipped, in ``root/MNIST/raw``."""

    def _read(self) -> tuple[Any, Any]:
        folder = Path(self.root, type(self).__name__, "raw")
        kind = "train" if self.train else "t10k"
        images, labels = (
            torch.from_numpy(_idx(folder / f"{kind}-{n}")) for n in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        return images, labels.long()


class FashionMNIST(MNIST):
    pass


class KMNIST(MNIST):
    pass


class FakeData(VisionDataset):
    """Images of noise with random labels; the same for an index each time."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(".", transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes = size, tuple(image_size), num_classes
        self.random_offset = random_offset

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= self.size:
            raise IndexError(f"FakeData: index {index} out of range of {self.size} images")
        g = torch.Generator().manual_seed(index + self.random_offset)
        noise = torch.randn(self.image_size, generator=g)
        label = int(torch.randint(0, self.num_classes, (1,), generator=g))
        return self._item(to_pil_image(noise), label)


def _idx(path: Path) -> np.ndarray:
    packed = path.with_name(path.name + ".gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.exists() and not path.exists() else path.read_bytes()
    zero, kind, rank = struct.unpack_from(">HBB", raw)
    if zero != 0 or kind != 8:
        raise RuntimeError(f"{path} is no IDX file of bytes")
    sizes = struct.unpack_from(f">{rank}I", raw, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(sizes).copy()


class CIFAR10(_Arrays):
    """The original batch files, in ``root/cifar-10-batches-py``."""

    _folder, _train, _test, _key = (
        "cifar-10-batches-py",
        [f"data_batch_{i}" for i in range(1, 6)],
        ["test_batch"],
        "labels",
    )

    def _read(self) -> tuple[Any, Any]:
        images, labels = [], []
        for name in self._train if self.train else self._test:
            with open(os.path.join(self.root, self._folder, name), "rb") as f:
                batch = _Plain(f, encoding="latin1").load()
            images.append(batch["data"])
            labels += batch[self._key]
        return np.vstack(images).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


class CIFAR100(CIFAR10):
    _folder, _train, _test, _key = "cifar-100-python", ["train"], ["test"], "fine_labels"


class _Plain(pickle.Unpickler):
    """Unpickles arrays and plain values: nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "scalar"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a data set")
