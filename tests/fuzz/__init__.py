"""Random programs and random changes of what programs read, compiled and in plain Python, compared in all that can be
seen.

- ``observe``: what can be seen of a call, as plain data.
- ``harness``: a program run in plain Python and compiled, and where the two differ.
- ``minimize``: a smaller program that differs in the same way.
- ``maker``, ``expressions``, ``statements``: programs; ``language``, ``objects``, ``memory``, ``effects``: topics that
  go deep, of which a program has a few.
- ``shapes``, ``numbers``: programs about sizes and numbers that change between calls.
- ``environments``: programs that read their surroundings, and changes to these between calls.
- ``run``: seeds, time, worker processes, a report: ``make fuzz``; ``watch`` tells which of these hang.

Invariant: a seed names one program for good; nothing else decides what it is.
"""
