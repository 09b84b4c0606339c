"""A recipe on a part of CIFAR-10, as much of each class, where all of it would take too long."""

from __future__ import annotations

import random
from pathlib import Path

TRAIN, TEST = 150, 100
"""Images of each class."""
_RECIPE = """\
name: cifar10-part
model: {model}
data: {{source: images, path: images}}
training:
  global_batch_size: 128
  optimizer: {{name: adam, learning_rate: 1e-3, schedule: cosine}}
stages:
  - prune:
      method: channels
      importance: least_squares
      samples: 500
      parameters: 0.8
      teacher: self
      alpha: 0.1
      epochs: 2
  - quantize: {{scheme: static_wi8_ai8}}
search:
  objectives: [accuracy, tflite_bytes]
  trials: 10
  space:
    prune.parameters: {{low: 0.5, high: 0.9, step: 0.1}}
    prune.importance: [least_squares, l1]
    quantize.scheme: [static_wi8_ai8, dynamic_wi4_afp32]
"""


def write_part(data: Path, model: Path, folder: Path) -> Path:
    """Write a recipe beside links to some of the images; return its file.

    Args:
        data: a folder {train,test}/<class>/*.
        model: trained on its train split.
        folder: for the recipe.
    """
    chance = random.Random(0)
    for split, count in (("train", TRAIN), ("test", TEST)):
        for of_class in sorted((data / split).iterdir()):
            target = folder / "images" / split / of_class.name
            target.mkdir(parents=True, exist_ok=True)
            for path in chance.sample(sorted(of_class.iterdir()), count):
                if not (target / path.name).is_symlink():
                    (target / path.name).symlink_to(path.resolve())
    recipe = folder / "recipe.yaml"
    recipe.write_text(_RECIPE.format(model=model.resolve()), encoding="utf-8")
    return recipe
