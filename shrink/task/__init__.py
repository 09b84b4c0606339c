"""What a model is for: its losses and metrics, and what an artifact scores."""
