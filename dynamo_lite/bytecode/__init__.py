"""Bytecode: decode a code object, analyse it, build a new one. Knows nothing of tensors or of the evaluator.

`instructions` decodes, `analysis` answers questions about the result, `emit` builds code through `assembler`; both ends
rest on the PyPI package `bytecode` (`library`). `facts` picks the module of what is particular to the running Python's
version (`py311` and those beside it); `roles` says what an instruction does without naming its opcode.
"""
