"""PyTorch's names for models of NNAPI: :mod:`facula.nnapi`."""
