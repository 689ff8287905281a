"""The loop IR: index arithmetic, expressions of loop bodies, loop nests; its checker and its interpreter.

A program's computation is a list of ``loops.LoopNest``. Each has a body of ``nodes.Node``, operations of the table in
``ops``, over ``index`` expressions. Targets and analyses read the same bodies: ``interpreter`` says what a nest
means.

May import nothing else of the back end; knows no aten operator and no target.
"""
