"""What a run cost and whether it passed: the report, its gates, and how people read it."""
