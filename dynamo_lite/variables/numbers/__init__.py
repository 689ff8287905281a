"""Trackers of numbers that the trace does not know or that change from call to call, of ranges and slices, of random
numbers, and of tensors that Python's `max` and `min` choose.

A part of the package `variables`, whose docstring says what may be imported.
"""
