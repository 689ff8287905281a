"""The symbolic evaluator of bytecode.

`translator` runs frames. `evaluator` holds the tracer's interface to values; its parts (`part`), each for one topic,
are in `values`, `errors`, `iteration`, `construction`, `classes`, `class_checks`, `operators` and `texts`. ``ops_*``
hold the instruction handlers by family, `py311` to `py315` those particular to a version; `opcodes` combines both.

May import `output`, `variables` and what stands above them; nothing but `frame` imports it.
"""
