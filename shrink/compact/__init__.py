"""A .tflite file rewritten for a smaller arena, its outputs equal to the byte.

Passes rewrite the graph (`passes`, `columns`, `borders`, `order`); `search` chooses segments and
row tiles, whose schedules `tiling` adds to the graph; `plan` places its blocks; `verify` compares.
"""
