"""Tensors without data, and what is known of them: the mode, the strides and overlaps that eager gives results, what
eager refuses, the elements that a guard has fixed.

May import `symbols`, `runtime`, `torch_versions` and the modules at the top of dynamo_lite; knows nothing of frames,
guards and trackers.
"""
