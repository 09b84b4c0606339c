"""What a model is for: its losses and metrics (`accuracy.py`), and what an artifact scores."""
