"""How a frame goes on: left before an instruction and entered again by a resume function, or started again in plain
Python when its graph raises; and the texts of code and graphs for logs.

`places` says where a frame can be left, `resume` and `unbound` how it is entered again, `origins` what resume functions
were made from, `deoptimize` how a frame starts again; `node_lines` and `listings` are what readers get to see.

May import `bytecode`, `runtime` and the modules at the top of dynamo_lite; knows nothing of trackers.
"""
