"""Recomputes the figures of a report from artifacts and raw data, without a line of shrink.

Numbers come from numpy, LiteRT, TFLite Micro, scikit-learn, tf-keras and the flatbuffer schema
that LiteRT ships. Only the tests and `drive.py`, which starts shrink, may import it.
"""
