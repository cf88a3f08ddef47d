"""Forward kinematics of an arm, and its Jacobian."""

import pytorch_kinematics as pk
from made import data, show

joint = """<joint name="j{k}" type="revolute"><parent link="l{k}"/><child link="l{n}"/><axis xyz="0 {y} {z}"/>
<origin xyz="0 0 0.3" rpy="0 0.1 0"/><limit lower="-2" upper="2" effort="1" velocity="1"/></joint><link name="l{n}"/>"""
text = (
    '<robot name="arm"><link name="l0"/>'
    + "".join(joint.format(k=k, n=k + 1, y=k % 2, z=1 - k % 2) for k in range(3))
    + "</robot>"
)
chain = pk.build_serial_chain_from_urdf(text, "l3")
angles = data(4, 3).requires_grad_()
matrix = chain.forward_kinematics(angles).get_matrix()
show("matrix", matrix)
show("jacobian", chain.jacobian(angles.detach()))
matrix[:, :3, 3].pow(2).sum().backward()
show("gradient", angles.grad)
