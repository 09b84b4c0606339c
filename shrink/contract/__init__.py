"""Typed objects that cross a process or reach a disk, and their one way into JSON."""
