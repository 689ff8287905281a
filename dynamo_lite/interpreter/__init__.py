"""The symbolic evaluator of bytecode.

:mod:`.translator` runs frames; :mod:`.protocols`, :mod:`.construction` and :mod:`.wrapping` are what Python does with
values; ``ops_*`` are the instructions by family, ``py311`` those that are particular to a version.
"""
