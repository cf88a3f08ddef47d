"""PyTorch's module of the functions between parameters and one vector."""

from . import parameters_to_vector as parameters_to_vector
from . import vector_to_parameters as vector_to_parameters
