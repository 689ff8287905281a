"""The symbolic evaluator of bytecode.

`translator` runs frames. `evaluator` is the tracer as values see it; the parts that own a topic each (`part`) stand
in `values`, `errors`, `iteration`, `construction`, `classes`, `class_checks`, `operators` and `texts`. ``ops_*`` are
the instructions by family, `py311` to `py315` those that are particular to a version, `opcodes` puts both together.

May import `output`, `variables` and what stands above them; nothing but `frame` imports it.
"""
