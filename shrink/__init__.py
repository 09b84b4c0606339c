"""shrink: prune, distill and quantize Keras models to TFLite, with a report of what every step cost."""

__version__ = "0.1.0"
