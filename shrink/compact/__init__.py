"""Less memory where the model runs: .tflite files rewritten so that outputs stay equal to the byte.

Every pass takes a graph and gives a graph. `compact` is the entry; what a pass needs to know of
the runtime stands in `cost`, what it does to memory in `views` and `plan`.
"""
