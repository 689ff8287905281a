"""Trackers of callables (functions of the user's, builtins, partials, generators, cached functions), and introspection
of functions and classes (`introspected`).

A part of `variables`, whose docstring names the permitted imports.
"""
