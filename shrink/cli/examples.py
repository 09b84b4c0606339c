"""Examples that `--help` shows below a command's flags; a test runs or checks every one."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "shrink run digits",
        "shrink run recipes/digits.yaml --set prune.sparsity=0.7 --dry-run",
        "shrink run recipes/digits.yaml --from prune --output runs/again",
    ),
    "train": ("shrink train student.py:build --data pictures/ --epochs 20 --memory-limit 2GB",),
    "distill": (
        "shrink distill --teacher big.keras --student student.py:build --data pictures/",
        "shrink distill --teacher big.keras --student student.py:build --data digits --alpha 0.5",
    ),
    "prune": (
        "shrink prune model.keras --data arrays.npz --sparsity 0.8 --epochs 5",
        "shrink prune model.h5 --data pictures/ --method channels --macs 0.5",
    ),
    "cluster": ("shrink cluster runs/prune-model --clusters 16 --epochs 3",),
    "quantize": (
        "shrink quantize model.h5 --data pictures/",
        "shrink quantize model.h5 --data pictures/ --scheme mixed --file-bytes 64KB",
        "shrink quantize runs/prune-model --scheme float16 --emit-recipe",
    ),
    "evaluate": ("shrink evaluate model.h5 --data pictures/",),
    "profile": ("shrink profile model.h5 --batch-size 512 --memory-limit 2GB",),
    "inspect": ("shrink inspect model.tflite", "shrink inspect model.h5 --groups"),
    "export": ("shrink export runs/quantize-model --format cc-array --output firmware/",),
    "bench": ("shrink bench model.tflite --threads 2",),
    "report": (
        "shrink report runs/digits",
        "shrink report runs/digits --tensorboard logs",
    ),
    "diff": ("shrink diff runs/main runs/digits --markdown",),
    "validate": (
        "shrink validate recipes/digits.yaml --set training.seed=1",
        "shrink validate digits digits-train",
    ),
    "init": (
        "shrink init model.h5 --data pictures/",
        "shrink init student.py:build --data digits --output digits.yaml",
    ),
    "check": ("shrink data check pictures/", "shrink data check recipes/digits.yaml"),
}


def epilog(command: str) -> str:
    """Return what a command's help ends with; the first character keeps the lines as they are."""
    lines = "\n".join(f"  {example}" for example in EXAMPLES[command])
    return f"\b\nExamples:\n{lines}"
