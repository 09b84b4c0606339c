"""Conversion of Keras models to .tflite artifacts, and reading of artifacts."""
