"""Trackers of numbers that the trace does not know or that change from call to call, of ranges and slices, of random
numbers, and of tensors chosen by Python's `max` and `min`.

A part of `variables`: what may be imported is said there.
"""
