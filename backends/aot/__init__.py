"""From a captured torch.fx graph to a functional aten graph that lowerings read.

`record` runs the captured graph on fake tensors and writes down the aten calls; `functional`, `mutation` and
`output_aliasing` keep track of memory, so that mutation and aliasing become values; `decompositions` break large
operations into ones with a lowering; `passes` clean up. `joint` makes the joint forward and backward graph,
`partition` cuts it (`mincut`), `training` runs the two halves.

May import nothing of `inductor`.
"""
