"""Bytecode: decode a code object, analyse it, build a new one.

`instructions` decodes, `analysis` and `stack` answer questions about the result, `emit` builds code through
`assembler`; both ends rest on the PyPI package `bytecode` (`library`). `facts` picks the module of what is particular
to the running Python's version (`py311` and those beside it); `roles` says what an instruction does without naming
its opcode.

May import nothing else of dynamo_lite; knows nothing of tensors and of the evaluator.
"""
