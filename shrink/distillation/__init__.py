"""The arithmetic of distillation, without a stage's context."""
