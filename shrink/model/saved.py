"""What kind of model a SavedModel folder holds, told from its files."""

from __future__ import annotations

from pathlib import Path

from shrink.base.protobuf import messages, text

KERAS_METADATA = "keras_metadata.pb"
_NODES, _NODE_PATH, _IDENTIFIER = 1, 3, 4
_SUBCLASSED = "_tf_keras_model"


def holds_layers(folder: Path) -> bool:
    """Whether Keras would build a SavedModel's layers anew from what it wrote beside the graph.

    It has not written any where `model.export` made the folder. Of a subclassed model it has, but
    how its layers belong together is in code that the folder does not hold: all that can be used
    is the graph. Field numbers are those of tf_keras/protobuf/saved_metadata.proto.
    """
    try:
        content = (folder / KERAS_METADATA).read_bytes()
        return not any(
            text(node, _NODE_PATH) == "root" and text(node, _IDENTIFIER) == _SUBCLASSED
            for node in messages(memoryview(content), _NODES)
        )
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # for the scan to refuse
