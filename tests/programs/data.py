"""Small data in the formats of public data sets, for programs whose data cannot be downloaded here.

python data.py KIND FOLDER [ARGUMENT...]
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np


def patterns(r, labels, shape):
    """Pictures of bytes: a pattern of the label and noise."""
    of_class = r.random((10, *shape))
    return (255 * (0.7 * of_class[labels] + 0.3 * r.random((len(labels), *shape)))).astype(np.uint8)


def mnist(folder, train=512, test=256, name="MNIST"):
    """IDX files, packed and not, as torchvision keeps those of MNIST."""
    idx(Path(folder, name, "raw"), train, test)


def idx(folder, train=512, test=256):
    """The files of MNIST in the folder itself."""
    r, raw = np.random.default_rng(1), Path(folder)
    raw.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", int(train)), ("t10k", int(test))):
        labels = r.integers(0, 10, count).astype(np.uint8)
        images = patterns(r, labels, (28, 28))
        for kind, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            data = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
            (raw / f"{part}-{kind}").write_bytes(data)
            (raw / f"{part}-{kind}.gz").write_bytes(gzip.compress(data))


def pictures(folder, classes=2, count=4, size=96):
    """PNG files in a folder for each of the classes; for one class in the folder itself."""
    from PIL import Image

    r = np.random.default_rng(2)
    for k in range(int(classes)):
        place = Path(folder, *[f"class{k}"] * (int(classes) > 1))
        place.mkdir(parents=True, exist_ok=True)
        for i in range(int(count)):
            coarse = r.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((int(size), int(size))).save(place / f"{i}.png")


def labelled(folder, train=24, test=8):
    """Pictures as binary PPM files; info.txt beside the folder lists them with their labels and parts."""
    r, folder = np.random.default_rng(4), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    labels = r.integers(0, 10, int(train) + int(test))
    pictures, lines = patterns(r, labels, (48, 64, 3)), []
    for k, (label, picture) in enumerate(zip(labels, pictures)):
        (folder / f"{k}.ppm").write_bytes(b"P6 64 48 255\n" + picture.tobytes())
        lines.append(f"{k}.ppm {label} {'train' if k < int(train) else 'test'}")
    (folder.parent / "info.txt").write_text("\n".join(lines))


def masks(folder, count=6, size=64):
    """Pictures and masks of two classes: folders imgs and masks."""
    from PIL import Image

    r = np.random.default_rng(3)
    for name in ("imgs", "masks"):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
    for i in range(int(count)):
        field = Image.fromarray(r.integers(0, 255, (6, 6), dtype=np.uint8)).resize((int(size), int(size)), 2)
        mask = (np.asarray(field) > 127).astype(np.uint8)
        picture = np.stack([np.asarray(field), 255 - np.asarray(field), 255 * mask], 2)
        Image.fromarray(picture).save(Path(folder, "imgs", f"{i}.png"))
        Image.fromarray(mask).save(Path(folder, "masks", f"{i}.png"))


def boxes(folder, count=8, size=64):
    """A data set in YOLO's format, described by folder/data.yaml: bright rectangles of two classes."""
    from PIL import Image

    r, folder = np.random.default_rng(4), Path(folder)
    for part in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True, exist_ok=True)
        for i in range(int(count)):
            picture, label = r.integers(0, 60, (int(size), int(size), 3), dtype=np.uint8), int(r.integers(2))
            x, y = r.integers(4, int(size) // 2, 2)
            w, h = r.integers(12, int(size) // 2 - 4, 2)
            picture[y : y + h, x : x + w, label] = 250
            Image.fromarray(picture).save(folder / "images" / part / f"{i}.jpg", quality=95)
            box = np.array([x + w / 2, y + h / 2, w, h]) / int(size)
            text = f"{label} " + " ".join(f"{v:.6f}" for v in box) + "\n"
            (folder / "labels" / part / f"{i}.txt").write_text(text)
    (folder / "data.yaml").write_text(
        f"path: {folder.resolve()}\ntrain: images/train\nval: images/val\nnames: {{0: red, 1: green}}\n"
    )


def font(file):
    """A font's file, for programs that draw text and would download one."""
    import matplotlib

    source = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    Path(file).write_bytes(source.read_bytes())


WORDS = "the cat sat on a mat and then it ran to an old tree while one small bird sang in green rain".split()


def text(file, lines=200, length=9):
    """Sentences of a small vocabulary."""
    r, file = np.random.default_rng(5), Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    sentences = [" ".join(r.choice(WORDS, int(length))) + " .\n" for _ in range(int(lines))]
    file.write_text("O God, O God!\n" + "".join(sentences))


def wikitext(folder, lines=200):
    """Files train.txt, valid.txt and test.txt of sentences."""
    for part in ("train", "valid", "test"):
        text(Path(folder, f"{part}.txt"), lines)


def cora(folder, nodes=2708, features=1433, edges=5429):
    """A graph of cited papers in Cora's files, cora.content and cora.cites."""
    r, folder = np.random.default_rng(6), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = (
        "Case_Based Genetic_Algorithms Neural_Networks Probabilistic_Methods Reinforcement_Learning".split()
    )
    kinds += ["Rule_Learning", "Theory"]
    of_node = r.integers(0, len(kinds), int(nodes))
    words = r.random((len(kinds), int(features))) < 0.03
    rows = [
        f"{n}\t"
        + "\t".join("1" if w else "0" for w in words[k] ^ (r.random(int(features)) < 0.005))
        + f"\t{kinds[k]}\n"
        for n, k in enumerate(of_node)
    ]
    (folder / "cora.content").write_text("".join(rows))
    pairs = r.integers(0, int(nodes), (int(edges), 2))
    (folder / "cora.cites").write_text("".join(f"{a}\t{b}\n" for a, b in pairs if a != b))


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    globals()[kind](*arguments)
