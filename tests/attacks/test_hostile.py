"""Hostile files are refused before TensorFlow is imported, and nothing in them runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shrink.base.errors import ModelError
from shrink.model.scan import _check_node, check_model_file
from tests.attacks.hostile import ATTACKS
from tests.attacks.parts import CANARY, archive, dense, sequential

_SCAN_ALL = """
import json, sys
from pathlib import Path
from shrink.base.errors import ModelError
from shrink.model.scan import check_model_file
from tests.attacks.hostile import ATTACKS
said = {}
for name, attack in ATTACKS.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    try:
        check_model_file(attack(folder))
        said[name] = None
    except ModelError as error:
        said[name] = [error.exit_code, str(error)]
heavy = [m for m in ("tensorflow", "tf_keras", "keras", "ai_edge_litert") if m in sys.modules]
print(json.dumps({"said": said, "heavy": heavy}))
"""


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """What a fresh process says of every attack, and what it has imported."""
    folder = tmp_path_factory.mktemp("attacks")
    command = [sys.executable, "-c", _SCAN_ALL, str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ATTACKS)
def test_check_model_file_refuses_hostile_files(name: str, scanned: tuple[Path, dict]) -> None:
    folder, result = scanned
    assert result["said"][name] is not None, "it passed"
    exit_code, text = result["said"][name]
    assert exit_code == 3
    assert "hint:" in text
    assert not list(folder.rglob(CANARY))


def test_check_model_file_imports_no_tensorflow(scanned: tuple[Path, dict]) -> None:
    assert scanned[1]["heavy"] == []
    assert len(ATTACKS) >= 60


def test_check_model_file_names_the_spot(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    path = ATTACKS["lambda_in_nested_model"](tmp_path / "x")
    with pytest.raises(ModelError, match=r"Lambda carries code \(at 'model/net/net/net/lambda'\)"):
        check_model_file(path)


def test_check_model_file_passes_the_frame_of_the_attacks(tmp_path: Path) -> None:
    """What the attacks change is what refuses them, not the file around it."""
    config = sequential(dense(), compile_config={"loss": "mse"})
    assert check_model_file(archive(tmp_path, config)).keras_version == "2.21.0"


def test_a_node_of_a_graph_without_name_and_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the operator '' may act outside the graph"):
        _check_node(memoryview(b""), "graph", frozenset(), frozenset({"Relu"}), tmp_path)
