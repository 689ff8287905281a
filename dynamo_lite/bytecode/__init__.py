"""Bytecode: decode a code object, analyse it, build a new one.

`instructions` decodes, `analysis` and `stack` answer questions about the result, `emit` builds code through
`assembler`; decoding and assembly rest on the PyPI package `bytecode` (`library`). `facts` picks the module with the
properties of the running Python version (`py311` to `py315`); `roles` says what an instruction does without naming
its opcode.

May import nothing else of dynamo_lite; knows nothing of tensors and of the evaluator.
"""
