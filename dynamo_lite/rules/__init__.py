"""What the compiler does with a call that it traces: the table of rules (`table`), the rules of users (`user`), the
marks for torch's own compiler (`torch_marks`), and the rows of modules and functions that need no implementation here
(`trace_rules`).

May import `log`, `config` and `break_kinds`. A rule with an implementation is registered beside it, in `polyfills`,
`variables` or `interpreter`.
"""
