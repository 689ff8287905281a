"""What a trace makes: the graph (`output_graph`), the changes to replay (`side_effects`), the code that stands for
the frame (`codegen`).

May import `variables` and what stands above; knows no opcodes.
"""
