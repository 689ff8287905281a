"""Trackers of what torch defines: its functions, modules, modes, autograd functions, checkpoints, transforms,
optimizers, control flow.

A part of `variables`: what may be imported is said there.
"""
