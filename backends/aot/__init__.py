"""From a captured torch.fx graph to a functional aten graph that lowerings read.

``record`` runs the captured graph on fake tensors and writes down the aten calls; ``functional`` keeps track of
memory, so that mutation and aliasing become values; ``decompositions`` break large operations into ones with a
lowering; ``passes`` clean up. A joint forward and backward graph and its partition are further modules on top of the
same recorder.
"""
