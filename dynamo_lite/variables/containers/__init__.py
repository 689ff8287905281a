"""Trackers of lists, tuples, dicts, sets, deques and iterators, and of the spaces in which names live.

A part of `variables`: what may be imported is said there.
"""
