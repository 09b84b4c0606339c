from __future__ import annotations

from pathlib import Path

from models import unet
from shrink.graph.groups import find_groups
from tests.models import checks

PLAIN = checks.PLAIN | {"UpSampling2D", "Concatenate"}


def closed_form(widths: tuple[int, ...], classes: int) -> int:
    """3x3 convolutions without bias and four numbers of batch norm a channel; 1x1 with bias."""

    def conv(inputs: int, outputs: int) -> int:
        return 9 * inputs * outputs + 4 * outputs

    a, b, c, d = widths
    down = conv(1, a) + conv(a, b) + conv(b, c)
    bottom = conv(c, d) + conv(d, d)
    up = conv(d + c, c) + conv(c + b, b) + conv(b + a, a)
    return down + bottom + up + classes * (a + 1)


def test_build_has_the_parameters_of_the_closed_form() -> None:
    model = unet.build()
    assert model.count_params() == closed_form((16, 24, 32, 48), 11)
    assert f"{model.count_params():,}" in str(unet.build.__doc__)
    assert (model.input_shape, model.output_shape) == ((None, 48, 48, 1), (None, 48, 48, 11))
    assert {type(layer).__name__ for layer in model.layers} <= PLAIN


def test_build_grows_with_width() -> None:
    assert checks.grows(unet.build, (0.25, 0.5, 1.0))


def test_channels_are_pruned_through_the_concatenations() -> None:
    groups = find_groups(unet.build()).groups
    assert len(groups) == 8  # all convolutions but the last, each a group of its own


def test_build_gives_a_model_that_survives_saving(tmp_path: Path) -> None:
    small = unet.build(width=0.25, input_shape=(16, 16, 1))
    assert checks.survives_saving(small, tmp_path)
