"""The examples that groups.py and channels.py are explained by."""

from __future__ import annotations

import tf_keras as keras

from shrink.graph.groups import find_groups

L = keras.layers


def test_the_example_of_groups() -> None:
    i = L.Input((4,))
    graph = find_groups(keras.Model(i, L.Dense(2, name="b")(L.Dense(3, name="a")(i))))
    (group,) = graph.groups
    assert (group.name, len(group)) == ("a", 3)
    members = [(m.layer, m.weight, m.axis, m.role) for m in group.members]
    assert members == [("a", 0, 1, "output"), ("a", 1, 0, "channel"), ("b", 0, 0, "input")]
    assert [entry.layer for entry in graph.protected] == ["b"]
    for gone, parameters, macs in ((0, 23, 18), (1, 16, 12)):
        keep = graph.keep(group.channels[:gone])
        assert (graph.parameters(keep), graph.macs(keep)) == (parameters, macs)


def test_the_example_of_channels() -> None:
    i = L.Input((2, 2, 3))
    x = L.Flatten()(L.Add()([L.Conv2D(2, 1, name="a")(i), L.Conv2D(2, 1, name="b")(i)]))
    graph = find_groups(keras.Model(i, L.Dense(1, name="after")(x)))
    made = {name: layer.produces for name, layer in graph.layers.items()}
    assert made["a"] is not None
    assert made["b"] is not None
    assert (made["a"].tolist(), made["b"].tolist()) == ([3, 4], [5, 6])
    assert graph.roots[[3, 4, 5, 6]].tolist() == [3, 4, 3, 4]
    (group,) = graph.groups
    rows = [m.positions[0].tolist() for m in group.members if m.layer == "after"]
    assert rows == [[0, 2, 4, 6]]
