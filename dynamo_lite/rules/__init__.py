"""What becomes of a call: the table of rules, the rules of users, the marks that torch's own compiler knows, and the
rows of modules and functions that need no implementation here.

May import `log`, `config` and `break_kinds`. A rule with an implementation is registered beside it, in `polyfills` or
in `variables`.
"""
