"""Matrix products that are measured: squares, those of transformers, few rows, batches of small matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Product:
    """[m, k] @ [k, n], `count` of them; `form` says which operands are transposed, or what follows, and
    `kind` whether numbers are float32 of the highest precision, of "high", or bfloat16.
    """

    m: int
    k: int
    n: int
    form: str = "mm"
    count: int = 1
    kind: str = "highest"

    @property
    def name(self) -> str:
        batch = f"{self.count} of " if self.count > 1 else ""
        return f"{self.form} {batch}{self.m}x{self.k}x{self.n}"

    @property
    def operations(self) -> float:
        return 2.0 * self.m * self.k * self.n * self.count

    @property
    def setup(self) -> str:
        batch = (self.count,) if self.count > 1 else ()
        x, y = (*batch, self.m, self.k), (*batch, self.k, self.n)
        if self.form == "weight gradient":
            x = (self.k, self.m)
        if self.form.startswith("linear"):
            y = (self.n, self.k)
        precision = "high" if self.kind == "high" else "highest"
        text = f"torch.set_float32_matmul_precision('{precision}')\n"
        text += f"x, y = normal{x}, normal(*{y}, seed=1)\n"
        if self.form.startswith("linear"):
            text += f"b = normal({self.n}, seed=2)\n"
        if self.kind == "bfloat16":
            names = "x, y, b" if self.form.startswith("linear") else "x, y"
            text += f"{names} = [t.bfloat16() for t in ({names})]\n"
        return text + self.more

    @property
    def more(self) -> str:
        if self.form == "linear gelu, compiled":
            return "f = torch.compile(lambda x: F.gelu(F.linear(x, y, b)))\n"
        return ""

    @property
    def statement(self) -> str:
        return {
            "mm": "x @ y",
            "bmm": "x @ y",
            "weight gradient": "x.T @ y",
            "linear": "F.linear(x, y, b)",
            "linear gelu, compiled": "f(x)",
        }[self.form]


PRODUCTS = [
    *(Product(n, n, n) for n in (512, 768, 1024, 1536, 2048, 4096)),
    # GPT-2 small, 512 tokens: queries, keys and values; projection; the two of the MLP; logits
    Product(512, 768, 2304, "linear"),
    Product(512, 768, 768, "linear"),
    Product(512, 768, 3072, "linear"),
    Product(512, 3072, 768, "linear"),
    Product(256, 768, 50257, "linear"),
    Product(768, 512, 3072, "weight gradient"),
    Product(3072, 512, 768, "weight gradient"),
    Product(512, 3072, 768, "mm"),
    Product(1024, 768, 768, "linear"),
    Product(512, 768, 3072, "linear gelu, compiled"),
    Product(64, 784, 256, "linear"),
    Product(256, 256, 256),
    Product(128, 128, 128),
]
HIGH = [replace(p, kind="high") for p in PRODUCTS]
BFLOAT16 = [replace(p, kind="bfloat16") for p in PRODUCTS if not p.form.endswith("compiled")]
SKINNY = [Product(m, 4096, 4096, "linear", kind=k) for k in ("highest", "bfloat16") for m in (1, 4, 8, 16)]
SMALL = [
    Product(n, n, n, "bmm", count) for n, count in ((8, 4096), (16, 2048), (32, 512), (48, 256), (64, 128))
] + [Product(128, 64, 128, "bmm", 96), Product(128, 128, 64, "bmm", 96)]
