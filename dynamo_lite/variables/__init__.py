"""One class per kind of value that a trace sees, registered beside its class: `base` is what all have in common; the
folders are the families.

May import `rules`, `polyfills`, `guards`, `continuation`, `fake` and what stands above them. A value gets the evaluator
and the code generator as arguments (`tx`, `cg`), and imports neither.
"""
