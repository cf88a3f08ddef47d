"""Parameters as one vector: names of PyTorch's module for it."""

from . import parameters_to_vector as parameters_to_vector
from . import vector_to_parameters as vector_to_parameters
