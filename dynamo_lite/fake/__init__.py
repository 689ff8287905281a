"""Tensors without data, and what is known of them: the fake tensor mode, the strides and memory overlaps of eager's
results, the operations that eager refuses, and elements that a guard has fixed.

May import `symbols`, `runtime`, `torch_versions` and the modules at the top of dynamo_lite; knows nothing of frames,
guards and trackers.
"""
