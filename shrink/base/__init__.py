"""The ground floor: errors, files, figures, children; imports no room."""
