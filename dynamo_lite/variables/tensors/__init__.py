"""Trackers of tensors and NumPy arrays, which tensors can be inputs of a graph, and what is known of their elements.

A part of `variables`: what may be imported is said there.
"""
