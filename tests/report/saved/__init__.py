"""Reports of real runs.

`chain` trains, prunes and quantizes; `taught` distills, with its control, and has two results;
`two` has two outputs; `missed` misses gates of every kind; `broken` has a stage that failed; `bare`
is of a .tflite file that came alone; `on-from` goes on from `chain`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


def saved(name: str) -> dict[str, Any]:
    """Report.json of a run."""
    text = (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
