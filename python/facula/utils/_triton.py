"""PyTorch's module about Triton, which is not used here: the library generates its own kernels."""


def has_triton() -> bool:
    return False


def has_triton_package() -> bool:
    return False
