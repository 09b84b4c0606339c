"""The shape of the image that a model takes, read from its file where it says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrink.base.types import JsonObject
from shrink.contract.model_source import ModelSource
from shrink.model.scan_files import check_archive, read_attribute
from shrink.tflite.interpreter import load

Shape = tuple[int, int, int]
"""Height, width and channels."""
Dimensions = Sequence[int | None]
"""Those of an input, with the batch; None where a length is open."""


def image_input(source: ModelSource) -> Shape | None:
    """Return the shape of the one image that a model takes; None without, or with several.

    Args:
        source: the model.

    Raises:
        ModelError: the model cannot be read.
    """
    shapes = [shape for each in _inputs(source) if (shape := _image(each)) is not None]
    return shapes[0] if len(shapes) == 1 else None


def _inputs(source: ModelSource) -> list[Dimensions]:
    """Return the shape of each input, with the batch."""
    path = source.path
    if source.kind == "tflite":
        return [detail.shape for detail in load(path).input_details]
    config = None
    if source.kind == "keras":
        config = check_archive(path)[1]
    elif source.kind == "h5":
        config = read_attribute(path, "model_config")
    if isinstance(config, dict) and (declared := list(_declared(config))):
        return declared
    from shrink.model.load import load_source

    return [tuple(tensor.shape) for tensor in load_source(source, as_graph=True).inputs]


def _declared(config: JsonObject) -> Iterator[Dimensions]:
    """Yield the shapes of a model's own input layers, as tf-keras and Keras 3 write them."""
    own = config.get("config")
    layers = own.get("layers") if isinstance(own, Mapping) else own
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, Mapping) and layer.get("class_name") == "InputLayer":
            settings = layer.get("config") or {}
            shape = settings.get("batch_input_shape") or settings.get("batch_shape")
            if isinstance(shape, list):
                yield shape


def _image(dimensions: Dimensions) -> Shape | None:
    known = [int(each) for each in dimensions[1:] if isinstance(each, int)]
    if len(dimensions) != 4 or len(known) != 3:
        return None
    height, width, channels = known
    return (height, width, channels) if channels in (1, 3) else None
