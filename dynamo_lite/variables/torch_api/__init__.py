"""Trackers of objects that torch defines: its functions, modules, modes, autograd functions, checkpoints, transforms,
optimizers and control flow.

A part of the package `variables`, whose docstring says what may be imported.
"""
