"""The arithmetic of quantization, without a stage's context."""
