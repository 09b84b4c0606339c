"""Benchmarks, each run as `python -m tests.benchmarks.NAME`."""

import os

# Before any import of TensorFlow: tf-keras is the training substrate, and banners say nothing.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
