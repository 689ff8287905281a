"""Trackers: one class per kind of value that a trace sees, registered beside the class.

`base` is what all have in common and how a value from outside gets its tracker; `protocols` is what a tracker may ask
of the tracer (`tx`) and of the code generator (`cg`), which it gets as arguments and does not import. The folders are
the families; the modules beside them are what several families share: constants, cells, texts, ids, ends of objects,
calls behind the graph.

May import `polyfills`, `rules`, `continuation`, `guards`, `bytecode`, `fake`, `runtime` and what stands above them.
"""
