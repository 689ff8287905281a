"""Trackers of lists, tuples, dicts, sets, deques and their iterators, and of the dicts that store attributes
(`spaces`).

A part of `variables`, whose docstring names the permitted imports.
"""
