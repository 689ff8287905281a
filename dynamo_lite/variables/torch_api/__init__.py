"""Trackers of what torch defines: modules, modes, autograd functions, transforms, optimizers, higher-order operators.

A part of `variables`: what may be imported is said there.
"""
