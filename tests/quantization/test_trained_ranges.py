from shrink.contract.trained_range import TrainedRange
from shrink.quantization.source import FloatModel
from shrink.quantization.trained_ranges import ranges_of_file
from shrink.tflite.structure import read
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
