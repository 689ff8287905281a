"""Trackers of callables: functions of the user's, builtins, partials, generators, functions under caches; what a
program asks of functions and classes (`introspected`).

A part of `variables`: what may be imported is said there.
"""
