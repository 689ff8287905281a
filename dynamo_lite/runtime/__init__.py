"""What compiled code and every compilation rely on while the program runs: autocast's state, the garbage collector,
which compilations are in flight, what graphs call and are printed as, which operations may raise, how much memory a
layout spans, and the program's hooks on what autograd saves.

May import nothing of dynamo_lite but `config`, `exc` and `log`.
"""
