"""Count what shrink takes from tf-keras, by reason, and check that the installed one has it.

python -m docs.substrate            the tables of docs/substrate.md
python -m docs.substrate --check    names that the installed tf-keras lacks; exit code 1 for any
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]

REASONS = {
    "annotate types: a model, a layer": r"Model|layers\.Layer|KerasTensor",
    "recognise or build kinds of layers": (
        r"(layers|activations|initializers|regularizers|constraints)\b.*|Input|Sequential"
    ),
    "train": r"(optimizers|losses|metrics|callbacks|mixed_precision)\b.*",
    "load, save and copy models": r"(models|saving|src\.saving)\b.*|utils\.custom_object_scope",
    "set seeds and read the state of Keras": r"(utils|(src\.)?backend|config|__version__)\b.*",
    "read how layers are connected": r"(src\.engine|__internal__)\b.*",
}
"""Each reason, with the names of tf-keras that it stands for."""

PRIVATE = {
    "_flatten_layers": "Model", "_is_graph_network": "Model", "_nodes_by_depth": "graph",
    "_nested_inputs": "graph", "_nested_outputs": "graph", "_insert_layers": "graph",
    "_callable_losses": "Model", "_keras_history": "tensor", "_trainable_weights": "Model",
    "_non_trainable_weights": "Model",
}  # fmt: skip
"""Attributes without a promise, and what has them: any model, a functional one, or a tensor."""


@dataclass
class Use:
    """What files take from tf-keras.

    Attributes:
        names: how often each name is used, such as `layers.Dense`, by file.
        private: how often each of `PRIVATE` is, by file.
    """

    names: dict[Path, Counter[str]] = field(default_factory=dict)
    private: dict[Path, Counter[str]] = field(default_factory=dict)


def measure() -> Use:
    """Return what the sources use."""
    use = Use()
    for path in sorted((ROOT / "shrink").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "keras" not in text:
            continue
        tree = ast.parse(text)
        near = path.relative_to(ROOT / "shrink")
        if names := Counter(_names(tree)):
            use.names[near] = names
        attributes = (n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute))
        if private := Counter(name for name in attributes if name in PRIVATE):
            use.private[near] = private
    return use


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield every name of tf-keras that is written out, as `layers.Dense`."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname or a.name: "" for a in node.names if a.name == "tf_keras"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tf_keras"):
            inner = (node.module or "").removeprefix("tf_keras").removeprefix(".")
            yield from (f"{inner}.{each.name}".lstrip(".") for each in node.names)
    for node in tree.body:  # L = keras.layers
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            dotted = _dotted(node.value, aliases)
            if dotted and isinstance(node.targets[0], ast.Name):
                aliases[node.targets[0].id] = dotted
    inner_nodes = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner_nodes:
            dotted = _dotted(node, aliases)
            if dotted and dotted not in aliases.values():
                yield dotted


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    whole = [*filter(None, [aliases[node.id]]), *parts]
    return ".".join(whole[: 2 if whole[0][0].islower() and whole[0] != "src" else 1])


def reason_of(name: str) -> str:
    """Return the reason that a name of tf-keras is used for.

    Raises:
        KeyError: it is in none of `REASONS`.
    """
    for reason, pattern in REASONS.items():
        if re.fullmatch(pattern, name):
            return reason
    raise KeyError(name)


def by_reason(use: Use) -> dict[str, tuple[int, int, str]]:
    """Return for each reason its uses, its files, and the room or file with most of them."""
    counts: dict[str, Counter[Path]] = defaultdict(Counter)
    for path, names in use.names.items():
        for name, times in names.items():
            counts[reason_of(name)][path] += times
    for path, names in use.private.items():
        counts["use private attributes"][path] += sum(names.values())
    return {
        reason: (sum(paths.values()), len(paths), f"shrink/{paths.most_common(1)[0][0]}")
        for reason, paths in counts.items()
    }


def tables(use: Use) -> str:
    """Return the tables of docs/substrate.md."""
    found = by_reason(use)
    lines = ["| tf-keras is used to | files | uses | mostly in |", "|---|--:|--:|---|"]
    for reason in (*REASONS, "use private attributes"):
        if reason in found:
            uses, files, most = found[reason]
            lines.append(f"| {reason} | {files} | {uses} | `{most}` |")
    rooms: Counter[str] = Counter()
    for path, names in use.names.items():
        rooms[path.parts[0]] += sum(names.values())
    lines += ["", "| package | files | uses |", "|---|--:|--:|"]
    for room, uses in sorted(rooms.items(), key=lambda pair: -pair[1]):
        lines.append(f"| {room} | {sum(p.parts[0] == room for p in use.names)} | {uses} |")
    private: Counter[str] = Counter()
    for names in use.private.values():
        private.update(names)
    told = ", ".join(f"`{name}` {times}" for name, times in private.most_common())
    return "\n".join(lines) + f"\n\nAttributes without a promise: {told}.\n"


def missing(use: Use) -> list[str]:
    """Return the names that the installed tf-keras does not have."""
    import tf_keras as keras

    lacking = []
    for name in sorted(set().union(*use.names.values())):
        found: object = keras
        if name.startswith("src."):
            found = __import__(f"tf_keras.{name.rpartition('.')[0]}", fromlist=["_"])
            name = name.rpartition(".")[2]
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            lacking.append(name)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    owners = {"Model": model, "graph": model, "tensor": model.outputs[0]}
    used = set().union(*use.private.values())
    return lacking + [n for n in sorted(used) if not hasattr(owners[PRIVATE[n]], n)]


def main() -> int:
    """Print the tables, or what is missing."""
    use = measure()
    if "--check" not in sys.argv:
        sys.stdout.write(tables(use))
        return 0
    lacking = missing(use)
    for name in lacking:
        sys.stdout.write(f"tf-keras has no {name}\n")
    return int(bool(lacking))


if __name__ == "__main__":
    raise SystemExit(main())
