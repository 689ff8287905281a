"""Ways for a frame to continue: a frame is left before an instruction and entered again by a resume function, or starts
again in plain Python when its graph raises. Also the texts of code and graphs for logs.

`places` says where a frame can be left, `resume` and `unbound` how it is entered again, `origins` from what resume
functions were made, `deoptimize` how a frame starts again; `node_lines` and `listings` make texts for readers.

May import `bytecode`, `runtime` and the modules at the top of dynamo_lite; knows nothing of trackers.
"""
