"""Packages: what goes along, what is imported where they are read, and files of PyTorch's."""

from __future__ import annotations

import base64
import inspect
import io
import sys
import zipfile
import zlib

import pytest
from facula.package import (
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    ObjNotFoundError,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)

import facula

# Written by PyTorch 2.13: modules my.mod and my.part, my/text.txt, and my/numbers.pkl with a: arange(3.),
# b: tensor([True]), s: Size([2]).
OF_PYTORCH = (
    "c-p0w&rjS&6vxMFb^$|v00Dv;p*<QB%zAf$P12UiiZ%xyN}!4einKD`A$IWEJL557k&tp(sYtoC|3WXV`XBVvQ?IR5_1HtCB*$DT"
    "C5K3z@hqFM7nTG@^7_Zl`@HXaGw<1JraS<^&=BYu(_jQx*mm4KxTw`FVl5W5kObIz0;|R#*y4lFeZES6zF9K|hnm0rQ5dB+>{#o="
    "UQDs|kL;Vr>`xgIbNa=<*`FkemHIlJ0(ZMk8?8k@YHULsYRz4*YOH*YPjNh#4-rr|nP&@0HjTk{v|2=5FH~w6Zbz<HuMy~n0j}*8"
    "6_ioc%|SZ36D^XtiBk0fi)`?R3K}rMrc7tq%?M>pnV{SQ6PR)v4VqFL4ISBb;Cav{Zs3Q?x3~^5tlx8OqM+fqb)*n9vW`Y$QQPQ}"
    "Lw!2OevBaSx^6C;l9M$hg03(;C0}JfV@D37j1x4mj;_U&5KVUMH{1hiIAvzqXu6HAucMhrV@vS%=hyB4oyv~WmtZ2f1O)CAjqH;P"
    "<o{WK>md{HV)hVasf%piJun8o6a_Sby4Gw}jmml5Z@G<TfJvSwX9oujewpt)_kE>v)o5u=3ll|A>To9?+Li~^{kc0zo(>F2g#F_w"
    "8hI9|bNP8{tnEa8yvmlRVdzEFLWwv0Kkk2+hJ*VCI}R?3!NzPBtpa-VH!R|Gq{ZHoy6B(Uju!-2Eow_#!G`qxc$xYr_f>EM7^ym^"
    "D-N+=qlu3^7*>t1&z*Tbc;b24(PYPQB#Kb16ee8$^_Tk#RNBHB!iQ7Bn=Rr5er=Do49cn+SuVV!>AJSU!0q>se#lYNTwm}cSV@7q"
    "#L{_Eu^b2W<I}5ZhSD=<Z2r}*@9h?W0c#vp<L*V4z;g-lU>yHfFK5n<e->z|_(O<Y%X1GbwnjC#UNz=FLy%r57K<glQYe)R%a!G_"
    "UZmIMO0irh-!9+Q_0rOEWvNoCFonfeyN*gVsIfwcC9A7Zd~Z$ns6ORAn1+b&p(NyS4@5r=B6iZL1msTvl6--s8DcY>NHD(3fRj3K"
    "Pb5Nv8A|~EP6BubO`D6|VLV~}y9`d~NojkrNN*(U?+t*y9VJZ?t1?OY&_ha=c$y^E*kpqAFbhtu=^imci6pc7mw@P&X4+ibzq3gN"
    "IdDc*t(m#pt>YS$7rK@ssq@<mKflZIGqq!%E8xvAzvrJ=*&MeSiRbgV{{!>rS`h"
)

NET = """
import facula
from . import util
import other
from shop.goods.tea import price


class Net(facula.nn.Module):
    class Inner:
        size = 3

    def __init__(self):
        super().__init__()
        self.linear = facula.nn.Linear(2, 2)

    def forward(self, x):
        return util.twice(self.linear(x)) + price

    def uses(self):
        return other.thing()
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Modules shop.net, shop.util, shop.goods.tea and other, apart from those of other tests."""
    (tmp_path / "shop" / "goods").mkdir(parents=True)
    for path, text in {
        "shop/__init__.py": "",
        "shop/net.py": NET,
        "shop/util.py": "def twice(x):\n    return x * 2\n",
        "shop/goods/__init__.py": "kind = 'goods'\n",
        "shop/goods/tea.py": "price = 7\n",
        "other.py": "def thing():\n    return 1\n",
    }.items():
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = [n for n in sys.modules if n.partition(".")[0] in ("shop", "other")]
    for n in names:
        del sys.modules[n]
    import shop.net

    yield shop
    for n in [n for n in sys.modules if n.partition(".")[0] in ("shop", "other")]:
        del sys.modules[n]


def packed(fill, **options):
    file = io.BytesIO()
    with PackageExporter(file, **options) as e:
        fill(e)
    return file


def whole(net):
    def fill(e):
        e.intern("shop.**")
        e.mock("other")
        e.save_pickle("model", "net.pkl", net)

    return fill


def test_a_module_travels_with_its_source(shop):
    net = shop.net.Net()
    importer = PackageImporter(packed(whole(net)))
    shop.util.twice = lambda x: x * 0  # the package has its own
    again = importer.load_pickle("model", "net.pkl")
    x = facula.ones(1, 2)
    assert facula.equal(again(x), net.linear(x) * 2 + 7)
    assert type(again) is not type(net) and type(again).__name__ == "Net"
    assert is_from_package(again) and not is_from_package(net)
    assert type(again).__module__ == importer.id() + ".shop.net"
    assert "util.twice" in inspect.getsource(type(again).forward)
    assert importer.import_module("shop.goods.tea").price == 7
    assert importer.load_pickle("model", "net.pkl").linear.weight.data_ptr() != again.linear.weight.data_ptr()
    with pytest.raises(NotImplementedError, match=r"other.thing' was mocked out.* __call__"):
        again.uses()


def test_two_packages_are_apart(shop):
    file = packed(whole(shop.net.Net()))
    a, b = PackageImporter(file), PackageImporter(file)
    assert a.id() != b.id()
    assert a.import_module("shop.net").Net is not b.import_module("shop.net").Net
    assert a.import_module("shop.net") is a.import_module("shop.net")
    assert "shop.net" in sys.modules and not any(n.startswith("<torch_package") for n in sys.modules)


def test_what_came_from_a_package_is_packed_again(shop):
    first = PackageImporter(packed(whole(shop.net.Net())))
    net = first.load_pickle("model", "net.pkl")
    with pytest.raises(ObjMismatchError):
        packed(whole(net))
    again = PackageImporter(packed(whole(net), importer=(first, sys_importer))).load_pickle(
        "model", "net.pkl"
    )
    assert facula.equal(again(facula.ones(1, 2)), net(facula.ones(1, 2)))
    nested = packed(
        lambda e: (e.intern("shop.**"), e.mock("other"), e.save_pickle("a", "b", shop.net.Net.Inner))
    )
    assert PackageImporter(nested).load_pickle("a", "b").size == 3


def test_each_module_needs_a_pattern(shop):
    net = shop.net.Net()
    with pytest.raises(PackagingError, match=r"(?s)did not match against any action.*shop.net"):
        packed(lambda e: e.save_pickle("m", "n", net))
    with pytest.raises(PackagingError, match=r"(?s)denied by a pattern.*other"):
        packed(lambda e: (e.deny("other"), e.intern("shop.**"), e.save_pickle("m", "n", net)))
    with pytest.raises(EmptyMatchError, match="nothing"):
        packed(lambda e: e.extern("nothing.**", allow_empty=False))
    with pytest.raises(PackagingError, match=r"(?s)no source.*math"):
        packed(lambda e: e.save_module("math"))
    with pytest.raises(ObjNotFoundError):
        packed(lambda e: e.save_pickle("m", "n", lambda: 0))


def test_what_is_known_of_a_package(shop):
    seen, file = [], io.BytesIO()
    with PackageExporter(file) as e:
        e.intern("shop.**", exclude="shop.goods.**")
        e.extern(["other", "shop.goods.*"])
        e.register_extern_hook(lambda exporter, name: seen.append(name))
        e.save_pickle("model", "net.pkl", shop.net.Net())
    assert e.interned_modules() == ["shop.net", "shop.util"]
    assert {"other", "shop.goods.tea", "torch._utils"} <= set(
        e.externed_modules()
    ) and seen == e.externed_modules()
    assert e.get_rdeps("shop.util") == ["shop.net"] and e.get_rdeps("shop.net") == ["<model.net.pkl>"]
    assert '"shop.net" -> "other"' in e.all_paths("<model.net.pkl>", "other")
    assert "util" not in e.all_paths("<model.net.pkl>", "other")
    importer = PackageImporter(file)
    files = importer.file_structure(exclude="**/*.storage")
    assert files.has_file("shop/net.py") and files.has_file("model") and not files.has_file(".data/0.storage")
    assert "├── model" in str(files)
    assert importer.python_version() == ".".join(map(str, sys.version_info[:3]))
    assert importer.load_pickle("model", "net.pkl").uses() == 1
    with pytest.raises(ModuleNotFoundError, match='No module named "shop.none"'):
        importer.import_module("shop.none")
    with pytest.raises(ImportError, match="'other' but that module has been disallowed"):
        PackageImporter(file, module_allowed=lambda name: name != "other")


def test_sources_and_resources_of_all_kinds(tmp_path):
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "__init__.py").write_text("from .deep import *\nfrom .deep.more import y\n")
    (tmp_path / "lib" / "deep" / "__init__.py").write_text("__all__ = ['more']\n")
    (tmp_path / "lib" / "deep" / "more.py").write_text(
        "y = 5\ndef late():\n    import lib.deep as d\n    return d.more.y\n"
    )

    def fill(e):
        e.intern("**")
        e.save_source_file("lib", str(tmp_path / "lib"))
        e.save_source_string("one", "import os.path\nimport two\nz = os.path.join('a', two.w)\n")
        e.save_source_string("two", "w = 'b'\n")
        e.save_binary("r", "b.bin", b"\x00\xff")
        e.save_text("r.s", "t.txt", "grün")
        x = facula.arange(4.0)
        e.save_pickle("r", "views.pkl", {"x": x, "tail": x[2:], "h": x.half(), "dtype": facula.bfloat16})

    importer = PackageImporter(packed(fill))
    lib = importer.import_module("lib")
    assert lib.y == 5 and lib.more.late() == 5 and importer.import_module(".more", "lib.deep") is lib.more
    assert importer.import_module("one").z == "a/b"
    assert importer.load_binary("r", "b.bin") == b"\x00\xff" and importer.load_text("r.s", "t.txt") == "grün"
    found = importer.load_pickle("r", "views.pkl")
    found["tail"].zero_()
    assert found["x"].tolist() == [0.0, 1.0, 0.0, 0.0] and found["h"].dtype == facula.float16
    assert found["dtype"] is facula.bfloat16
    with pytest.raises(FileNotFoundError, match="no record r/none"):
        importer.load_binary("r", "none")


def test_packages_of_pytorch_are_read():
    importer = PackageImporter(io.BytesIO(zlib.decompress(base64.b85decode(OF_PYTORCH))))
    numbers = importer.load_pickle("my", "numbers.pkl")
    assert numbers["a"].tolist() == [0.0, 1.0, 2.0] and numbers["b"].tolist() == [True]
    assert numbers["s"] == facula.Size([2]) and importer.load_text("my", "text.txt") == "words"
    module = importer.import_module("my.mod")
    assert module.scale(facula.tensor([-1.0, 4.0])).tolist() == [0.0, 8.0]
    assert module.torch is facula


def test_files_that_are_no_packages_are_refused(tmp_path):
    facula.save({"a": facula.ones(1)}, tmp_path / "saved.pt")
    with pytest.raises(RuntimeError, match="is no package"):
        PackageImporter(tmp_path / "saved.pt")
    with pytest.raises(zipfile.BadZipFile):
        PackageImporter(io.BytesIO(b"no zip file"))
    with pytest.raises(ValueError, match="without folders"):
        packed(lambda e: e.save_text("a", "b/c", ""))
    e = PackageExporter(io.BytesIO())
    e.close()
    with pytest.raises(RuntimeError, match="closed"):
        e.save_text("a", "b", "")


def test_nothing_is_written_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), PackageExporter(tmp_path / "p.pt") as e:
        e.save_text("a", "b", "")
        1 / 0  # noqa: B018
    assert not (tmp_path / "p.pt").exists()


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.**", "a", True),
        ("a.**.d", "a.b.c.d", True),
        ("**.d", "a.d", True),
        ("a*c", "abbc", True),
        ("a.b", "axb", False),
        ("**", "any.thing", True),
    ],
)
def test_patterns(pattern, name, matches):
    assert GlobGroup(pattern).matches(name) is matches
    assert not GlobGroup(pattern, exclude=name).matches(name)
    with pytest.raises(ValueError, match="entire path segment"):
        GlobGroup("a**")
