"""Trackers of tensors and arrays, and what is known of their elements.

A part of `variables`: what may be imported is said there.
"""
