"""State and objects that compiled code and every compile rely on while the program runs: the autocast state, the
garbage collector, the compiles in flight, the callables and modules of graphs, the set of operations that may raise,
the storage extent of a layout, the program's hooks on tensors that autograd saves, and the neutral state of probes.

May import nothing of dynamo_lite but `config`, `exc` and `log`. The back end may import `raising`,
`saved_tensor_hooks` and `storage_extent`.
"""
