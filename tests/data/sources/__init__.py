"""Tests of each source of examples."""
