"""Prune, distill and quantize Keras models to TFLite, and report what every step cost."""

__version__ = "0.1.0"
