"""Trackers of Python numbers that the trace does not know or that change from call to call, ranges, and random numbers.

A part of `variables`: what may be imported is said there.
"""
