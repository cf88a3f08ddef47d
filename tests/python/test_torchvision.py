"""The torchvision that is installed, behind the alias: it is used, and what it takes from its shared
libraries is there. Oracles: its rules in plain loops, and the convolution that one without offsets is.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import facula

vision = pytest.importorskip("facula._alias.vision")


def says(program, folder):
    paths = os.pathsep.join([str(Path(facula.__file__).parents[1]), str(folder)])
    done = subprocess.run(
        [sys.executable, "-m", "facula.torch", "-c", program],
        env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_one_that_is_installed_comes_before_the_stand_in(tmp_path):
    package = tmp_path / "torchvision"
    (package / "ops").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import torch\nfrom . import _meta_registrations, extension, ops\n"
        "from .extension import _has_ops\nwho = 'installed'\n"
    )
    for name in ("_meta_registrations", "_autograd_registrations", "extension"):
        (package / f"{name}.py").write_text("raise OSError('libtorch.so: not found')\n")
    (package / "ops/__init__.py").write_text("from . import boxes\n")
    (package / "ops/boxes.py").write_text("import torch\nnms = torch.ops.torchvision.nms\n")
    program = (
        "import torchvision, torchvision.ops.boxes as b, torch\n"
        "print(torchvision.who, torchvision._has_ops())\n"
        "print(b.nms(torch.tensor([[0., 0, 1, 1], [0, 0, 1, 1]]), torch.tensor([.1, .2]), .5).tolist())\n"
    )
    assert says(program, tmp_path) == ["installed", "False", "[1]"]
    child = "import torchvision; print(torchvision.who)"
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n"
    assert says(child, tmp_path) == ["installed"]


def suppressed(boxes, scores, threshold):
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        for k in kept:
            w = min(boxes[i][2], boxes[k][2]) - max(boxes[i][0], boxes[k][0])
            h = min(boxes[i][3], boxes[k][3]) - max(boxes[i][1], boxes[k][1])
            both = max(w, 0) * max(h, 0)
            areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[i], boxes[k])]
            if both / (sum(areas) - both) > threshold:
                break
        else:
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_nms(threshold):
    r = np.random.default_rng(3)
    corner = r.random((200, 2)) * 10
    boxes = np.concatenate([corner, corner + 0.1 + r.random((200, 2)) * 4], 1)
    scores = r.integers(0, 40, 200) / 40.0  # with ties, of which the first is better
    kept = vision.nms(facula.tensor(boxes), facula.tensor(scores), threshold)
    assert kept.dtype == facula.int64 and kept.tolist() == suppressed(boxes, scores, threshold)


def test_nms_of_nothing_and_of_other_shapes():
    assert vision.nms(facula.zeros(0, 4), facula.zeros(0), 0.5).tolist() == []
    with pytest.raises(RuntimeError, match="nms: boxes should be a 2d tensor of 4 columns"):
        vision.nms(facula.zeros(3, 5), facula.zeros(3), 0.5)
    with pytest.raises(RuntimeError, match="nms: scores should be .* of 3 elements"):
        vision.nms(facula.zeros(3, 4), facula.zeros(2), 0.5)


def deformed(x, weight, offset, mask, bias, stride, pad, dilation, groups, offset_groups):
    return vision.deform_conv2d(
        x, weight, offset, mask, bias, *stride, *pad, *dilation, groups, offset_groups, mask.dim() == 4
    )


@pytest.mark.parametrize(("stride", "pad", "dilation"), [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))])
def test_a_deformed_convolution_without_offsets_is_a_convolution(stride, pad, dilation):
    x, w, b = facula.randn(2, 4, 7, 8), facula.randn(6, 2, 3, 2), facula.randn(6)
    expected = facula.nn.functional.conv2d(x, w, b, stride, pad, dilation, groups=2)
    offset = facula.zeros(2, 2 * 2 * 6, *expected.shape[2:])
    got = deformed(x, w, offset, facula.zeros(2, 1), b, stride, pad, dilation, 2, 2)
    assert facula.allclose(got, expected, atol=1e-5)
    half = facula.full((2, 2 * 6, *expected.shape[2:]), 0.5)
    got = deformed(x, w, offset, half, b * 0, stride, pad, dilation, 2, 2)
    assert facula.allclose(got * 2, expected - b[:, None, None], atol=1e-5)


def test_a_deformed_convolution_reads_beside_its_places():
    x = facula.arange(20.0).reshape(1, 1, 4, 5)
    w, b = facula.ones(1, 1, 1, 1), facula.zeros(1)
    one, none = (1, 1), (0, 0)
    offset = facula.zeros(1, 2, 4, 5)
    offset[0, 0], offset[0, 1] = 1.0, 0.5  # a row down, half a column on
    got = deformed(x, w, offset, facula.zeros(1, 1), b, one, none, one, 1, 1)
    wide = np.pad(x.numpy()[0, 0], ((0, 1), (0, 1)))
    expected = (wide[1:, :-1] + wide[1:, 1:]) / 2
    assert np.allclose(got.numpy()[0, 0], expected)
    offset[0, 0] = -10.0
    assert (deformed(x, w, offset, facula.zeros(1, 1), b, one, none, one, 1, 1) == 0).all()


def test_gradients_of_a_deformed_convolution():
    f = facula.float64
    x, w, b = facula.randn(1, 2, 4, 4, dtype=f), facula.randn(2, 2, 2, 2, dtype=f), facula.randn(2, dtype=f)
    offset, mask = facula.rand(1, 8, 3, 3, dtype=f) * 0.8 + 0.1, facula.rand(1, 4, 3, 3, dtype=f)
    inputs = [t.requires_grad_() for t in (x, w, offset, mask, b)]
    one = (1, 1)
    assert facula.autograd.gradcheck(lambda *t: deformed(*t, one, (0, 0), one, 1, 1), inputs)
    with pytest.raises(RuntimeError, match=r"deform_conv2d: offset should have shape \(1, 8, 3, 3\)"):
        deformed(x, w, offset[:, :4], mask, b, one, (0, 0), one, 1, 1)


def test_files_of_images(tmp_path):
    pytest.importorskip("PIL")
    from PIL import Image

    r = np.random.default_rng(0)
    pixels = facula.tensor(r.integers(0, 256, (3, 5, 6), np.uint8))
    file = vision.encode_png(pixels, 6)
    assert facula.equal(vision.decode_png(file, 0), pixels) and facula.equal(
        vision.decode_image(file, 3), pixels
    )
    assert vision.decode_image(file, 1).shape == (1, 5, 6) and vision.decode_image(file, 4)[3].min() == 255
    vision.write_file(str(tmp_path / "x.png"), file)
    assert facula.equal(vision.read_file(str(tmp_path / "x.png")), file)
    jpeg = vision.encode_jpeg(pixels, 90)
    with Image.open(__import__("io").BytesIO(jpeg.numpy().tobytes())) as image:
        assert np.array_equal(vision.decode_jpeg(jpeg, 0).numpy(), np.asarray(image).transpose(2, 0, 1))
    frames = [Image.new("RGB", (4, 3), c) for c in ("red", "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert vision.decode_image(vision.read_file(str(tmp_path / "x.gif")), 0).shape == (2, 3, 3, 4)
    for bad in (file[:20], facula.zeros(0, dtype=facula.uint8), facula.zeros(9), jpeg):
        with pytest.raises(RuntimeError, match="decode_png: "):
            vision.decode_png(bad, 0)
    with pytest.raises(RuntimeError, match="No such file"):
        vision.read_file(str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match="encode_png: needs a uint8 tensor"):
        vision.encode_png(facula.zeros(3, 2, 2), 6)
