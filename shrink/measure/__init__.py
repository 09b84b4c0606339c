"""What is measured on a model or an artifact: size, memory, latency, accuracy."""
