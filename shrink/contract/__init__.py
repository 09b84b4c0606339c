"""Typed objects that cross a process or reach a disk, and their conversion to JSON."""
