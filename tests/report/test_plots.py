"""The Pareto front, memory bars, loss curves and the headline, each against figures by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from shrink.base.figures import PICTURE
from shrink.contract.result import StageOutcome
from shrink.report.svg import Plot
from tests.report.plain import (
    bar_groups,
    headlines,
    loss_plots,
    markup,
    sensitivity_tables,
    tradeoff_plot,
)
from tests.report.toys import outcome, outcomes, report, with_result


def test_tradeoff_plot_marks_the_front_and_draws_intervals() -> None:
    plot = tradeoff_plot(report())
    assert plot is not None
    root = ElementTree.fromstring(markup(plot))
    marks = [c.attrib["class"] for c in root.iter("circle")]
    # train is best, quantize smallest; prune has the accuracy of quantize and is larger.
    assert marks == ["dot on-front", "dot beaten", "dot on-front"]
    assert len([r for r in root.iter("line") if r.attrib["class"] == "whisker"]) == 3
    assert "1 train; 2 prune; 3 quantize. Filled (3, 1): on the Pareto front" in plot.caption


def drawn(plot: Plot | None) -> ElementTree.Element:
    assert plot is not None
    return ElementTree.fromstring(markup(plot))


def texts(plot: Plot | None, kind: str) -> list[str]:
    """The plot's texts of a class."""
    found = [t for t in drawn(plot).iter("text") if kind in t.attrib["class"].split()]
    return ["".join(t.itertext()) for t in found]


def sized(name: str, correct: int, tflite_bytes: int, **size: int) -> StageOutcome:
    made = outcome(name, correct, tflite_bytes, None if name == "train" else "train")
    return with_result(made, size={**made.result.size, **size})


def sparse(name: str, correct: int, gzip_bytes: int, nonzero: int, **changes: Any) -> StageOutcome:
    """A stage whose zeros do not shrink its TFLite file."""
    made = sized(name, correct, 416_000, gzip_bytes=gzip_bytes, nonzero_parameters=nonzero)
    return replace(made, **changes)


def test_tradeoff_plot_takes_what_differs_where_the_files_are_equally_large() -> None:
    stages = [sparse("train", 98, 300, 100), sparse("s50", 97, 200, 50), sparse("s90", 20, 90, 10)]
    plot = tradeoff_plot(report(stages, finals=("s50", "s90")))
    assert plot is not None
    assert "All TFLite files are about equally large." in plot.caption
    assert texts(plot, "title") == ["nonzero parameters, logarithmic", "accuracy (%)"]


def test_tradeoff_plot_shows_marks_of_one_size_at_their_true_values() -> None:
    stages = [sized("train", 98, 400), sized("a", 99, 100), sized("b", 99, 100)]
    plot = tradeoff_plot(report(stages, finals=("a", "b")))
    assert plot is not None
    places = [(c.attrib["cx"], c.attrib["cy"]) for c in drawn(plot).iter("circle")]
    assert places[1] == places[2]
    assert texts(plot, "label") == ["1", "2, 3"]


def test_bars_scale_to_the_longest_and_place_a_near_limit() -> None:
    train, prune, quantize = outcomes()
    limited = with_result(train, training={"memory_limit_bytes": 50_000_000, "history": {}})
    device = bar_groups(report([limited, prune, quantize]), PICTURE)[-1]
    found = [(bar.label, bar.percent, bar.limit_percent, bar.kind) for bar in device.bars]
    assert found == [
        ("train", 80, 100, "measured"),
        ("train, predicted", 82, 100, "predicted"),
        ("prune", 80, None, "measured"),
        ("prune, predicted", 82, None, "predicted"),
    ]
    assert device.caption == "Limit 50.0 MB, the tick"


def test_bars_of_about_one_length_are_shown_where_there_is_a_limit() -> None:
    train = outcomes()[0]
    memory = {**train.result.memory, "training_peak_bytes": 10_100_000}
    memory["training_peak_predicted_bytes"] = 9_950_000
    for limit, kind, caption in (
        (10_000_000, "over", "Limit 10.0 MB, the tick"),
        (30_300_000, "measured", "Limit 30.3 MB, 3 times the longest bar"),
    ):
        training = {"memory_limit_bytes": limit, "history": {}}
        stage = with_result(train, memory=memory, training=training)
        groups = bar_groups(report([stage], finals=("train",)), PICTURE)
        (device,) = [group for group in groups if group.caption]
        assert (device.bars[0].kind, device.caption) == (kind, caption)


def test_loss_plots_draw_a_curve_per_split() -> None:
    history = {"loss": [3.0, 2.0, 1.0], "val_loss": [3.0, None, 2.5], "accuracy": [0, 0, 0]}
    train, _, quantize = outcomes()
    shown = loss_plots(report([with_result(train, training={"history": history}), quantize]))
    assert [plot.title for plot in shown] == ["train"]
    assert shown[0].caption == "After epoch 3: training 1, validation 2.5."
    curves = list(ElementTree.fromstring(markup(shown[0])).iter("polyline"))
    assert [c.attrib["class"] for c in curves] == ["curve loss", "curve val_loss"]
    assert [p.split(",")[0] for p in curves[1].attrib["points"].split()] == ["0.00", "100.00"]


def test_headlines_say_when_a_loss_is_proven() -> None:
    stages = [outcome("train", 98, 1000, None), outcome("q", 60, 500, "train")]
    (headline,) = headlines(report(stages, finals=("q",)))
    assert "The TFLite file of q is 2 times smaller than that of train" in headline.sentence
    assert headline.sentence.endswith("a proven loss.")


def test_headlines_name_a_metric_in_words_and_no_gain_in_latency_within_its_noise() -> None:
    cases = (
        ("balanced_accuracy", "Balanced accuracy", "90.00 %", 0.95, "0.95 ms"),
        ("roc_auc", "ROC AUC", "0.9", 0.5, "2x faster"),
    )
    for metric, title, value, after, shown in cases:
        stages = [
            with_result(
                outcome(name, 98, 1000, source),
                metrics={"loss": 0.1, metric: 0.9},
                latency={"p50_ms": p50, "p90_ms": p50, "threads": 1},
            )
            for name, source, p50 in (("train", None, 1.0), ("q", "train", after))
        ]
        (headline,) = headlines(report(stages, finals=("q",)))
        tiles = {tile.label: tile.value for tile in headline.tiles}
        assert tiles["Median latency"] == shown
        assert tiles[title] == value


def test_headlines_say_when_a_result_grew_or_stayed() -> None:
    for size, words in ((2000, "2 times larger"), (1000, "of q and train are equally large")):
        stages = [outcome("train", 98, 1000, None), outcome("q", 98, size, "train")]
        assert words in headlines(report(stages, finals=("q",)))[0].sentence


def test_headlines_tell_what_zeros_saved_where_the_file_stays_as_large() -> None:
    stages = [sparse("train", 98, 300_000, 104_000), sparse("s50", 97, 180_000, 52_000)]
    tiles = {
        t.label: (t.value, t.before) for t in headlines(report(stages, finals=("s50",)))[0].tiles
    }
    assert tiles["Nonzero parameters"] == ("2x fewer", "52.0 K instead of 104 K")
    assert tiles["Size under gzip -9"] == ("1.67x smaller", "180 KB instead of 300 KB")
    assert "Nonzero parameters" not in {t.label for t in headlines(report())[0].tiles}


def sensitivity(*curves: Any) -> list[Any]:
    train, prune, _ = outcomes()
    return sensitivity_tables(
        report([train, with_result(prune, details={"sensitivity": [*curves]})])
    )


def test_sensitivity_tables_have_a_row_per_group() -> None:
    flat = {"layers": "conv<1>", "ratios": [0, 0.5, 0.9], "losses": [1.0, 1.0, 1.0]}
    steep = {"layers": "conv_2", "ratios": [0, 0.5], "losses": [1.0, 1.5]}
    (found,) = sensitivity(flat, steep)
    assert found.title == "prune: groups"
    assert found.heads == ("layers", "0%", "50%", "90%")
    assert found.rows == (("conv<1>", "1", "1", "1"), ("conv_2", "1", "1.5", "-"))
