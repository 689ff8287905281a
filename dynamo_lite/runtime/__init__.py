"""What compiled code and every compilation rely on while the program runs: autocast's state, the garbage collector,
which compilations are in flight, what graphs call and are printed as, and which operations may raise.

May import nothing of dynamo_lite but `config`, `exc` and `log`.
"""
