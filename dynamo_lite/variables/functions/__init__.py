"""Trackers of callables: functions of the user's, builtins, partials, caches.

A part of `variables`: what may be imported is said there.
"""
