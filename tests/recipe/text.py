"""A recipe that uses most of what YAML offers a recipe."""

from __future__ import annotations

RECIPE = """\
# yaml-language-server: $schema=recipe.schema.json
name: digits
model: ../models/digits_cnn.py:build
data: {source: digits}
training: {global_batch_size: 256, optimizer: {name: adam, learning_rate: 1e-3}, memory_limit: 2GB}
stages:
  - train:    {epochs: 20}
  - distill:  {student: {width: 0.5}, temperature: 4, alpha: 0.1, epochs: 20}
  - prune: &prune
      method: channels
      exclude: ["conv_*", 'dense']
      epochs: 5
  - quantize: {scheme: static_wi8_ai8}
gates: {accuracy_drop: 0.02, tflite_bytes: 40KB, arena_bytes: 64KB}
"""
