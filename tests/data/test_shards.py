from __future__ import annotations

import json
from pathlib import Path

import pytest

from shrink.base.errors import DataError
from shrink.data.shards import prepared_folder
from shrink.recipe.data_reference import parse_data_reference


def _prepare(folder: Path, feature: str = "tensorflow_datasets.core.features.Image") -> Path:
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    described = {"featuresDict": {"features": {"image": {"pythonClassName": feature}}}}
    (folder / "features.json").write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize("up", range(4))
def test_prepared_folder_finds_the_only_version_below(tmp_path: Path, up: int) -> None:
    folder = _prepare(tmp_path / "mnist" / "plain" / "3.0.1")
    assert prepared_folder([folder, *folder.parents][up]) == folder


def test_prepared_folder_refuses_features_whose_module_would_be_imported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the feature evil\.Image is not"):
        prepared_folder(_prepare(tmp_path / "1.0.0", feature="evil.Image"))


def test_parse_data_reference_knows_a_prepared_folder(tmp_path: Path) -> None:
    folder = _prepare(tmp_path / "1.0.0")
    assert parse_data_reference(str(folder), tmp_path) == {"source": "tfds", "path": str(folder)}
