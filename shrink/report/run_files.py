"""Files made from a report alone, such as the model card and the metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from shrink.base import files
from shrink.base.errors import MAY_HAVE_BEEN_TRAINED_ON, OVERLAP
from shrink.base.figures import COSTS, figure_of, metric_figure
from shrink.base.foreign import JsonObject
from shrink.contract.codec import to_plain
from shrink.contract.details import Limits
from shrink.contract.report import Report, Stage
from shrink.contract.usage import METADATA_NAME, VOCABULARY_NAME, metadata, vocabulary
from shrink.report.ci import render_junit
from shrink.report.content import cached_lines, flat_metrics, recipe_of, split_of, warnings_of
from shrink.report.headline import verdict
from shrink.report.memory_map import memory_map_sentences
from shrink.report.page import NULL, markdown
from shrink.report.placement import placement_sentences
from shrink.report.sections import HTML_NAME, render_html, render_markdown
from shrink.report.slices import slice_table

_MOST_SLICES = 10


def render_card(report: Report, report_sha256: str) -> str:
    """Return the model card as Markdown, with a part for each result of the run.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.
    """
    codes = {warning.code for warning in warnings_of(report)}
    return markdown(
        "card.md",
        report=report,
        verdict=verdict(report),
        warnings=[warning.text() for warning in warnings_of(report)],
        unknown_training=MAY_HAVE_BEEN_TRAINED_ON in codes,
        seen=bool({OVERLAP, MAY_HAVE_BEEN_TRAINED_ON} & codes),
        results=[one for one in report.stages if one.name in report.finals and one.artifact],
        split=split_of(report),
        figures=lambda stage: list(_figures(report, stage)),
        sentences=[*memory_map_sentences(report), *placement_sentences(report)],
        slices=lambda stage: slice_table(report, stage, _MOST_SLICES),
        settings=_settings,
        vocabulary_name=VOCABULARY_NAME,
        steps=list(_steps(report)),
        cached=cached_lines(report),
        sha256=report_sha256,
    )


def _figures(report: Report, stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, value, 95 % interval and the baseline's value of every figure of a result."""
    base = report.stage(report.baseline) or stage
    for name, value in (stage.metrics or {}).items():
        text, limits = metric_figure(name).text, stage.intervals.get(name, Limits())
        span = NULL if limits.low is None else f"{text(limits.low)} to {text(limits.high)}"
        yield name, text(value), span, text((base.metrics or {}).get(name))
    for name in (*COSTS, "p90_ms"):
        figure, value = figure_of(name), stage.figure(name)
        if value is not None:
            yield figure.title, figure.text(value), NULL, figure.text(base.figure(name))


def _steps(report: Report) -> Iterator[str]:
    """Yield what the recipe says of the data and of each stage."""
    recipe = recipe_of(report)
    if data := recipe.get("data"):
        yield f"data: {_settings(data)}"
    for entry in recipe.get("stages", ()):
        for kind, settings in entry.items() if isinstance(entry, Mapping) else ():
            stage = report.stage(str((settings or {}).get("name") or kind))
            yield f"{stage.name if stage else kind}: {_settings(settings or {})}"


def _settings(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    filled = {key: item for key, item in value.items() if item not in (None, [], {}, "")}
    texts = {k: f"({_settings(i)})" if isinstance(i, Mapping) else i for k, i in filled.items()}
    return ", ".join(f"{key} {text}" for key, text in texts.items())


MARKDOWN_NAME = "report.md"
JUNIT_NAME = "junit.xml"
METRICS_NAME = "metrics.json"
CARD_NAME = "model-card.md"
RENDERED = (MARKDOWN_NAME, HTML_NAME, JUNIT_NAME, METRICS_NAME, CARD_NAME, METADATA_NAME)
"""Every name that `render` returns, but for `VOCABULARY_NAME`, of models of texts alone."""


def render(report: Report, lineages: Mapping[str, JsonObject]) -> dict[str, str]:
    """Return the files that show a report, by name.

    Args:
        report: the report.
        lineages: of its artifacts, by their SHA-256, for `artifacts/metadata.json`.
    """
    digest = hashlib.sha256(files.json_text(to_plain(report)).encode()).hexdigest()
    return {
        MARKDOWN_NAME: render_markdown(report),
        HTML_NAME: render_html(report),
        JUNIT_NAME: render_junit(report),
        METRICS_NAME: files.json_text(flat_metrics(report)),
        CARD_NAME: render_card(report, digest),
        METADATA_NAME: files.json_text(metadata(report, digest, lineages)),
        **vocabulary(report),
    }
