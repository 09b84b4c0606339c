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
  - distill: {{student: {{width: 0.75}}, epochs: 4}}
  - prune: {{method: channels, parameters: 0.8, epochs: 2}}
  - quantize: {{}}
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
            target.mkdir(parents=True)
            for path in chance.sample(sorted(of_class.iterdir()), count):
                (target / path.name).symlink_to(path.resolve())
    recipe = folder / "recipe.yaml"
    recipe.write_text(_RECIPE.format(model=model.resolve()), encoding="utf-8")
    return recipe
