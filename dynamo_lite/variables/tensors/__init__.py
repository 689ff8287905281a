"""Trackers of tensors and NumPy arrays, the rules for which tensors can be inputs of a graph, and the knowledge of
tensors' elements.

A part of the package `variables`, whose docstring says what may be imported.
"""
