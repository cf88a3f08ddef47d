"""Rotations: conversions, distances and alignment."""

import roma
from made import data, show

q = roma.quat_normalize(data(5, 4))
m = roma.unitquat_to_rotmat(q)
show("matrices", m)
show("vectors", roma.rotmat_to_rotvec(m))
show("angles", roma.rotmat_to_euler("xyz", m))
show("distance", roma.rotmat_geodesic_distance(m[:-1], m[1:]))
show("slerp", roma.unitquat_slerp(q[0], q[1], data(3).sigmoid()))
x = data(3, 3).requires_grad_()
rotation = roma.special_procrustes(x)
show("procrustes", rotation)
(rotation * data(3, 3, seed=1)).sum().backward()
show("gradient", x.grad)
points = data(10, 3)
show("aligned", list(roma.rigid_points_registration(points, points @ m[0].T + 1)))
