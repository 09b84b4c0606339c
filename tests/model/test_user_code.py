"""Python files of the user's that cannot be imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import DataError, ModelError
from shrink.data.config import DataConfig
from shrink.data.sources.python import open_source
from shrink.model.user_modules import imported


@pytest.mark.parametrize(("name", "hinted"), [("helper_beside", True), ("helper_nowhere", False)])
def test_a_module_beside_a_file_is_hinted_at_where_it_is_not_found(
    tmp_path: Path, name: str, hinted: bool
) -> None:
    (tmp_path / "helper_beside.py").write_text("WIDTH = 8\n", encoding="utf-8")
    path = tmp_path / f"of_{name}.py"
    path.write_text(f"import {name}\n", encoding="utf-8")
    with pytest.raises(ModelError, match=f"No module named '{name}'") as caught:
        imported(path)
    assert (caught.value.hint is not None) == hinted
    assert not hinted or f"PYTHONPATH={tmp_path} " in str(caught.value.hint)
    with pytest.raises(DataError, match=f"No module named '{name}'") as caught_too:
        open_source(DataConfig(source="python", path=f"{path}:examples"), seed=0)
    assert ("PYTHONPATH" in str(caught_too.value.hint)) == hinted
