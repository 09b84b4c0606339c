"""Detectors: what their outputs mean, the loss, decoding on the host, mean average precision."""
