import numpy as np
import tf_keras as keras

from shrink.contract.trained_range import TrainedRange
from shrink.quantization.source import FloatModel
from shrink.quantization.trained_ranges import ranges_of_file
from shrink.tflite.model import read
from tests.model.tfmot import zoo


def test_ranges_of_file_finds_the_tensors_that_layers_become() -> None:
    source = FloatModel(zoo.small())
    x = zoo.examples(source.model)
    trained = (
        TrainedRange("picture", False, 0.0, 1.0),
        TrainedRange("relu", False, 0.5, 6.0),
        TrainedRange("scores", True, -3.0, 4.0),
        TrainedRange("gone", False, -3.0, 4.0),
    )
    found = ranges_of_file(source, trained, [{"picture": x}])
    assert sorted(found.values()) == [(-3.0, 4.0), (0.0, 1.0), (0.0, 6.0)]
    graph = read(source.float32.content)[0]
    written = {graph.tensors[o.outputs[0]].name: o.name for o in graph.operators}
    operators = {limits: written.get(name) for name, limits in found.items()}
    assert operators == {(0.0, 1.0): None, (0.0, 6.0): "CONV_2D", (-3.0, 4.0): "FULLY_CONNECTED"}


def test_ranges_of_file_takes_names_that_end_in_numbers_for_names() -> None:
    """Keras calls the second and the third of a kind so itself, and the parts of a layer, too."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), name="vector")
    x = inputs
    for name, activation in (("dense", "relu"), ("dense_1", "gelu"), ("dense_1_2", "relu")):
        x = keras.layers.Dense(6, activation, name=name)(x)
    source = FloatModel(keras.Model(inputs, keras.layers.Dense(3, name="dense_2")(x)))
    order = ["dense", "dense_1", "dense_1_2", "dense_2"]
    trained = [TrainedRange(name, False, -1.0, 1.0 + n) for n, name in enumerate(order)]
    x = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
    found = ranges_of_file(source, trained, [{"vector": x}])
    graph = read(source.float32.content)[0]
    outputs = [graph.tensors[one.outputs[0]].name for one in graph.operators]
    assert [found[name][1] for name in outputs if name in found] == [1.0, 2.0, 3.0, 4.0]
