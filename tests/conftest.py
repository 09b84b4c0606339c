"""The environment that every test shares."""

from __future__ import annotations

import os

# Before any import of TensorFlow: tf-keras is the training substrate, and banners say nothing.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
