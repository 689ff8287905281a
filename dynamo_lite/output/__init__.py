"""What a trace makes: the graph, the changes to replay, the code that stands for the frame.

May import `variables` and what stands above; knows no opcodes.
"""
