"""Replaces a module that a package omits: every use raises an error with its name."""

_METHODS = """
    abs add and bool bytes call complex contains delitem divmod enter eq exit float floordiv format
    ge getitem gt hash iadd iand idiv ifloordiv ilshift imod imul index int invert ior ipow irshift
    isub iter itruediv ixor le len lshift lt matmul mod mul ne neg next or pos pow radd rand rdivmod
    reversed rfloordiv rlshift rmod rmul ror round rpow rrshift rshift rsub rtruediv rxor set
    setitem sub truediv xor
"""


class MockedObject:
    """An object of a mocked module."""

    _name: str

    def __new__(cls, *args, **kwargs):
        if not kwargs.get("_suppress_err"):
            raise NotImplementedError(
                f"Object '{cls._name}' was mocked out during packaging but it is being used"
            )
        return super().__new__(cls)

    def __init__(self, name: str, _suppress_err: bool) -> None:
        self.__dict__["_name"] = name

    def __repr__(self) -> str:
        return f"MockedObject({self._name})"


def _refusal(method):
    def refuse(self, *args, **kwargs):
        raise NotImplementedError(
            f"Object '{self._name}' was mocked out during packaging but it is being used in {method}"
        )

    return refuse


for _method in _METHODS.split():
    setattr(MockedObject, f"__{_method}__", _refusal(f"__{_method}__"))
