"""The report of a run: its figures, gates and pages."""
