"""The Python interface: the command line's verbs as functions; docs/python.md shows them."""

from __future__ import annotations

from shrink.api.others import compare, load_run, profile, run, sweep
from shrink.api.results import Comparison, Run, RunStage, SearchResult
from shrink.api.search import search
from shrink.api.verbs import cluster, compact, distill, evaluate, prune, quantize, train

__all__ = [
    "API_VERSION",
    "Comparison",
    "Run",
    "RunStage",
    "SearchResult",
    "cluster",
    "compact",
    "compare",
    "distill",
    "evaluate",
    "load_run",
    "profile",
    "prune",
    "quantize",
    "run",
    "search",
    "sweep",
    "train",
]

API_VERSION = 1
"""Of the names, parameters and attributes: raised where one goes or changes its meaning."""
