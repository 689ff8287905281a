"""Trackers: one class per kind of value that a trace sees, registered beside the class.

`base` holds the common base class and the wrapping of values from outside in trackers. `protocols` declares the
interfaces of the tracer (`tx`) and the code generator (`cg`), which trackers get as arguments and do not import. Each
folder is a family of trackers; the modules beside the folders are shared by several families: constants, cells, texts,
ids, finalization of objects, calls that run after the graph.

May import `polyfills`, `rules`, `continuation`, `guards`, `bytecode`, `fake`, `runtime` and what stands above them.
"""
