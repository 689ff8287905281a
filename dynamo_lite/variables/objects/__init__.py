"""Trackers of instances and classes of the user's, attribute reads and writes through descriptors, `super()`, weak
references, and the state of exceptions.

A part of `variables`, whose docstring names the permitted imports.
"""
