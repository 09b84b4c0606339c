"""Metrics that are not means over examples: a module for each family, and their bootstrap."""
