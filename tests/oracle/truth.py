"""What is known of a run without its report: the test examples and what the outputs mean."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Output:
    """One output of the Keras model.

    Attributes:
        name: of the layer that gives it.
        loss: `sparse_categorical_crossentropy`, `categorical_crossentropy`,
            `binary_crossentropy`, `mean_squared_error`, `mean_absolute_error`, or one of
            `tests.oracle.losses`.
        from_logits: whether the model gives logits, which its builder knows.
        weight: of this loss in the sum over outputs.
        arguments: of the loss.
    """

    name: str
    loss: str
    from_logits: bool = False
    weight: float = 1.0
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Truth:
    """The test split as it lies in the raw data, and the meaning of the model's outputs.

    Attributes:
        inputs: arrays by the name of the Keras input, (n, ...), in the order of the examples.
        outputs: in the order of the Keras model's outputs.
        targets: arrays by output name.
        masks: of outputs that a mask reaches, (n, T), True where an element counts.
        metrics: names beside the loss.
        labels: class names by index, if there are any.
        train_examples: how many examples the train split has; None where it is not known.
        slices: by slicing, the slice of each example, texts (n,).
    """

    inputs: dict[str, np.ndarray]
    outputs: list[Output]
    targets: dict[str, np.ndarray]
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=lambda: ["accuracy"])
    labels: list[str] | None = None
    train_examples: int | None = None
    slices: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def save(self, path: Path) -> None:
        """Write it to one .npz file."""
        described = {
            "inputs": list(self.inputs),
            "outputs": [asdict(o) for o in self.outputs],
            "metrics": self.metrics,
            "labels": self.labels,
            "train_examples": self.train_examples,
        }
        arrays: dict[str, Any] = {f"x:{k}": v for k, v in self.inputs.items()}
        arrays |= {f"y:{k}": v for k, v in self.targets.items()}
        arrays |= {f"m:{k}": v for k, v in self.masks.items()}
        arrays |= {f"s:{k}": v for k, v in self.slices.items()}
        with path.open("wb") as file:
            np.savez(file, described=np.array(json.dumps(described)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Truth:
        """Read what `save` wrote."""
        with np.load(path) as held:
            described = json.loads(str(held["described"]))
            kinds = {
                kind: {k[2:]: held[k] for k in held.files if k.startswith(f"{kind}:")}
                for kind in "xyms"
            }
        return cls(
            {name: kinds["x"][name] for name in described["inputs"]},
            [Output(**o) for o in described["outputs"]],
            kinds["y"],
            kinds["m"],
            described["metrics"],
            described["labels"],
            described["train_examples"],
            kinds["s"],
        )
