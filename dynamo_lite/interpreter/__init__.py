"""The symbolic evaluator of bytecode.

:mod:`.translator` runs frames; :mod:`.protocols`, :mod:`.construction` and :mod:`.wrapping` are what Python does with
values; ``ops_*`` are the instructions by family, ``py311`` to ``py315`` those that are particular to a version, and
:mod:`.opcodes` puts both together.
"""
