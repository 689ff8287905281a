"""What compiled code and every compile rely on while the program runs: autocast's state, the garbage collector,
which compiles are in flight, what graphs call and are printed as, which operations may raise, how much memory a
layout spans, and the program's hooks on what autograd saves.

May import nothing of dynamo_lite but `config`, `exc` and `log`. The back end may import `raising`,
`saved_tensor_hooks` and `storage_extent`.
"""
