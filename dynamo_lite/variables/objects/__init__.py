"""Trackers of instances and classes of the user's, attribute reads and writes through descriptors, `super()`, weak
references, exceptions' state.

A part of `variables`: what may be imported is said there.
"""
