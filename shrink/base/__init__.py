"""The lowest layer: errors, files, figures and child processes. It imports no other package."""
