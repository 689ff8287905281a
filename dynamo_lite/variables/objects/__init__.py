"""Trackers of instances and classes of the user's, descriptors, `super()`.

A part of `variables`: what may be imported is said there.
"""
