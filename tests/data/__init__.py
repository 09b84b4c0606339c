"""Tests of the data sets, their splits and their pipelines."""
