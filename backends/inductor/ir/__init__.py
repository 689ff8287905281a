"""The loop IR: index arithmetic, expressions of loop bodies, loop nests; its checker and its interpreter.

A program's computation is a list of ``loops.LoopNest``. The body of a nest is an expression graph of ``nodes.Node``:
operations of the table in ``ops``, with memory accesses at ``index`` expressions. Code generators and analyses read the
same bodies; ``interpreter`` defines their semantics.

May import nothing else of the back end; the package knows no aten operator and no target.
"""
