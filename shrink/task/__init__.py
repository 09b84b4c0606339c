"""The task of a model: its losses and metrics, and the scores of an artifact."""
