"""The bundled recipes, recomputed from outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tests.cli.conftest import FinishedRun
from tests.oracle.audit import audit
from tests.oracle.drive import ROOT, run_cli
from tests.oracle.records import summary
from tests.oracle.truth import Output, Truth

RECIPES = ROOT / "recipes"
CIFAR_CLASSES = [
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
]  # fmt: skip
SHORT = {
    "cifar10": ["train.epochs=1", "prune.epochs=1"],
    "cifar10-channels": ["prune.epochs=1", "prune.samples=60"],
    "cifar10-distill": ["distill.epochs=1"],
    "cifar10-pretrained": ["prune.epochs=1"],
    "cifar10-quantize-aware": ["quantize.epochs=1"],
    "cifar10-search": ["prune.epochs=1", "prune.samples=60"],
}


def _digits(picked: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits as images, (n, 8, 8, 1), and their labels."""
    held = load_digits()
    x, y = held.images[..., None].astype(np.float32), held.target
    return (x, y) if picked is None else (x[picked], y[picked])


def _truth(x: np.ndarray, y: np.ndarray, name: str, labels: list[str] | None = None) -> Truth:
    output = Output("logits", "sparse_categorical_crossentropy", from_logits=True)
    return Truth({name: x}, [output], {"logits": y}, labels=labels)


def test_report_of_digits_agrees_with_the_oracle(finished: FinishedRun) -> None:
    from shrink.data.config import DataConfig
    from shrink.data.opening import open_dataset

    # shrink says which digits are tested; what they are, scikit-learn says.
    test = open_dataset(DataConfig(source="digits"), seed=0).test
    images, _ = test.arrays(np.arange(len(test)))
    x, y = _digits()
    places = {image.tobytes(): i for i, image in enumerate(x)}
    picked = np.array([places[p.astype(np.float32).tobytes()] for p in np.asarray(images)])
    assert len(set(picked.tolist())) == len(picked) == 360
    records = audit(finished.folder, _truth(x[picked], y[picked], "picture"))
    assert len(records) > 400
    assert not [r for r in records if not r.agrees], summary(records)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """The digits with splits of our own, in one file."""
    x, y = _digits()
    train, test = train_test_split(np.arange(len(y)), test_size=360, stratify=y, random_state=1)
    train, validation = train_test_split(train, test_size=140, stratify=y[train], random_state=1)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    splits = {"train": train, "validation": validation, "test": test}
    arrays = {
        f"{k}_{name}": v[rows] for name, rows in splits.items() for k, v in (("x", x), ("y", y))
    }
    np.savez(path, **arrays)
    return path, _truth(x[test], y[test], "picture")


OF_DIGITS = sorted(
    path.stem for path in RECIPES.glob("digits*.yaml") if "source: python" not in path.read_text()
)
"""Those of scenes are in tests/cli/test_task_recipes.py and tests/task/test_detection_recipe.py."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DIGITS)
def test_report_of_a_bundled_recipe_agrees_with_the_oracle(
    name: str, digits: tuple[Path, Truth], tmp_path: Path
) -> None:
    settings = ["--set", "data.source=npz", "--set", f"data.path={digits[0]}"]
    store = digits[0].parent / "store"
    done = run_cli(["run", name, *settings, "--output", "out"], tmp_path, store)
    assert done.code in (0, 1), done.printed
    records = audit(tmp_path / "out", digits[1])
    assert not [r for r in records if not r.agrees], summary(records)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """Synthetic images of ten classes, and a ResNet8 with random weights."""
    from PIL import Image

    from models.resnet import build

    folder = tmp_path_factory.mktemp("cifar")
    rng = np.random.default_rng(0)
    tints = rng.integers(40, 216, (10, 1, 1, 3))
    held: dict[str, tuple[list[np.ndarray], list[int]]] = {}
    for split, each in (("train", 16), ("validation", 4), ("test", 12)):
        held[split] = ([], [])
        for label, name in enumerate(CIFAR_CLASSES):
            place = folder / "cifar10" / split / name
            place.mkdir(parents=True)
            for i in range(each):
                image = np.clip(tints[label] + rng.normal(0, 40, (32, 32, 3)), 0, 255)
                Image.fromarray(image.astype(np.uint8)).save(place / f"{i:02}.png")
                held[split][0].append(image.astype(np.uint8))
                held[split][1].append(label)
    build().save(folder / "cifar10_resnet8.h5")
    x, y = np.stack(held["test"][0]), np.array(held["test"][1])
    return folder, _truth(x, y, "picture", CIFAR_CLASSES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("name", SHORT)
def test_report_of_a_recipe_for_images_agrees_with_the_oracle(
    name: str, images: tuple[Path, Truth], tmp_path: Path
) -> None:
    folder, truth = images
    settings = [f"data.path={folder / 'cifar10'}", *SHORT[name]]
    if name != "cifar10":
        settings.append(f"model={folder / 'cifar10_resnet8.h5'}")
    words = [word for setting in settings for word in ("--set", setting)]
    done = run_cli(["run", name, *words, "--output", "out"], tmp_path, folder / "store")
    assert done.code in (0, 1), done.printed
    records = audit(tmp_path / "out", truth)
    assert not [r for r in records if not r.agrees], summary(records)
