"""Trackers of lists, tuples, dicts, sets, deques and their iterators, and of the dicts in which names live
(`spaces`).

A part of `variables`: what may be imported is said there.
"""
