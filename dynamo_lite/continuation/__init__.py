"""How a frame goes on: left before an instruction and entered again by a resume function, or started again in plain
Python when its graph raises; and the texts of code and graphs for logs.

May import `bytecode`, `guards.source` and `runtime`; knows nothing of tensors and trackers.
"""
