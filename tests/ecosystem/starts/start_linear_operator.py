"""Structured matrices: solves, determinants, roots."""

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    LowRankRootLinearOperator,
    ToeplitzLinearOperator,
)
from made import data, show, uniform

root, diagonal = data(6, 2).double().requires_grad_(), uniform(6).double() + 0.5
matrix = LowRankRootLinearOperator(root).add_diagonal(diagonal)
show("dense", matrix.to_dense())
right = data(6, 2, seed=1).double()
show("solved", matrix.solve(right))
quadratic, determinant = matrix.inv_quad_logdet(right, logdet=True)
show("quadratic", quadratic)
show("determinant", determinant)
(quadratic + determinant).backward()
show("gradient", root.grad)
a = to_linear_operator(torch.eye(3).double() + 0.1)
product = KroneckerProductLinearOperator(a, DiagLinearOperator(uniform(2).double() + 1))
show("kronecker", product @ data(6, 1).double())
show("cholesky", product.cholesky().to_dense())
show("toeplitz", ToeplitzLinearOperator(torch.tensor([4.0, 1, 0.5, 0.2])) @ data(4, 2))
