"""Turns a captured torch.fx graph into a functional aten graph, which lowerings read.

`record` runs the captured graph on fake tensors and records the aten calls; `functional`, `mutation` and
`output_aliasing` keep track of memory, so that mutation and aliasing become values; `decompositions` break large
operations into ones that have a lowering; `passes` clean up. `joint` makes the joint forward and backward graph,
`partition` cuts it in two (`mincut`), `training` runs the two halves.

May import nothing of `inductor`.
"""
