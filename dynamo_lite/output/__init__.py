"""The results of a trace: the graph (`output_graph`), the side effects to replay (`side_effects`), and the code that
replaces the frame's code (`codegen`).

May import `variables` and what stands above; knows no opcodes.
"""
