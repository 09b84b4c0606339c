"""The arithmetic of pruning, without a stage's context."""
