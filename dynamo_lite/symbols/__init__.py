"""Integers that are known only when the program runs: their arithmetic, the decisions of a trace about them, and the
nodes behind the ``torch.SymInt`` objects that torch's operators compute with.

May import the modules at the top of dynamo_lite; knows nothing of guards, sources and trackers. The back end may import
`integers` and `nodes`.
"""
