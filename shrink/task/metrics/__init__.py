"""Metrics that are no means over examples: a family a file, and their bootstrap."""
