"""Model references of the command line and recipes, classified without loading anything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError, ModelError, RecipeError, listed, near_file
from shrink.base.file_kinds import messages, text
from shrink.contract.model_source import NO_TRUST, ModelKind, ModelSource, Trust

KERAS_METADATA = "keras_metadata.pb"
_NODES, _NODE_PATH, _IDENTIFIER = 1, 3, 4
_SUBCLASSED = "_tf_keras_model"


def holds_layers(folder: Path) -> bool:
    """Whether Keras would build a SavedModel's layers anew from what it wrote beside the graph.

    It has not written any where `model.export` made the folder. Of a subclassed model it has, but
    how its layers belong together is in code that the folder does not hold: all that can be used
    is the graph. Field numbers are those of tf_keras/protobuf/saved_metadata.proto.
    """
    try:
        content = (folder / KERAS_METADATA).read_bytes()
        return not any(
            text(node, _NODE_PATH) == "root" and text(node, _IDENTIFIER) == _SUBCLASSED
            for node in messages(memoryview(content), _NODES)
        )
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # for the scan to refuse


Form = Literal["keras", "tflite"]
"""A model that can be trained, or a graph without layers, such as a TFLite artifact."""
_SUFFIXES: dict[str, ModelKind] = {
    ".keras": "keras",
    ".h5": "h5",
    ".hdf5": "h5",
    ".tflite": "tflite",
}
_OTHERS = {
    **dict.fromkeys(
        (".pt", ".pth", ".pt2", ".safetensors"),
        "export it to TFLite with litert-torch (litert_torch.convert(model, inputs).export("
        "'model.tflite')), which shrink quantizes and compacts, or rebuild it in Keras",
    ),
    ".onnx": "convert it to TFLite with onnx2tf, which shrink quantizes and compacts, or rebuild "
    "it in Keras",
    ".ckpt": "load the checkpoint into its model and save that: in Keras by "
    "model.save('model.keras'), in PyTorch by litert_torch.convert(model, inputs).export("
    "'model.tflite')",
    ".pb": "give the folder of the SavedModel; export a frozen graph as a SavedModel first",
}
"""What to do with models of other frameworks, by suffix."""
_WINDOWS_DRIVE = re.compile(r"([A-Za-z]):[\\/]")
_MOST_NAMED = 6
_FORMS = ".keras, .h5, .tflite, a SavedModel folder, a run folder, or file.py:function"


@dataclass(frozen=True)
class ModelReference:
    """A model by its place: a file, a folder, or a function that builds it."""

    kind: ModelKind
    path: Path
    function: str | None = None

    @property
    def form(self) -> Form:
        """Whether it can be trained, or is a graph without layers, such as a TFLite artifact."""
        return "tflite" if self.kind == "tflite" or self.graph_only else "keras"

    @property
    def graph_only(self) -> bool:
        """Whether it is a SavedModel of a graph alone.

        `model.export` of any Keras writes such, and `model.save` of a subclassed model.
        """

        return self.kind == "savedmodel" and not holds_layers(self.path)

    @property
    def trained(self) -> bool:
        """Whether it brings weights of its own."""
        return self.kind != "builder"

    def source(
        self, trust: Trust = NO_TRUST, arguments: Mapping[str, float] | None = None
    ) -> ModelSource:
        """Return what a worker loads it from."""
        return ModelSource(self.kind, self.path, self.function, dict(arguments or {}), trust)

    def __str__(self) -> str:
        return f"{self.path}:{self.function}" if self.function else str(self.path)


def parse_model_reference(text: str, folder: Path) -> ModelReference:
    """Return what a model's name refers to.

    Args:
        text: a path, or `file.py:function` (`build` where the function is left out).
        folder: the folder that a relative path starts from.

    Raises:
        ModelError: nothing is there, or it is nothing that shrink takes for a model.
    """
    path_text, function = _split_function(text)
    path = expand_user(path_text)
    path = path if path.is_absolute() else (folder / path).resolve()
    if path.suffix.lower() in _OTHERS and not path.is_dir():
        message = "shrink reads Keras and TFLite models, not this format"
        raise ModelError(message, subject=path, hint=_OTHERS[path.suffix.lower()])
    if not exists(path):
        hint = windows_hint(path_text) or _hint(path)
        raise ModelError("no such model file or folder", subject=path, hint=hint)
    if function or path.suffix == ".py":
        return ModelReference("builder", path, function or "build")
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return ModelReference("savedmodel", path)
        if (path / REPORT_NAME).is_file():
            return _last_artifact(path)
        found = sorted(path.glob(f"*/{REPORT_NAME}"))
        runs = listed([str(one.parent) for one in found], _MOST_NAMED)
        raise ModelError(
            "this folder holds neither a SavedModel (saved_model.pb) nor a run (report.json)",
            subject=path,
            hint=f"name one of its runs: {runs}" if runs else f"give {_FORMS}",
        )
    if path.suffix.lower() in _SUFFIXES:
        return ModelReference(_SUFFIXES[path.suffix.lower()], path)
    raise ModelError("not a kind of model that shrink knows", subject=path, hint=f"give {_FORMS}")


def refuse_idle_trust(trust: Trust, references: Iterable[ModelReference]) -> None:
    """Raise `RecipeError` where flags trust the code of files that can hold none.

    Args:
        trust: as the command line says it.
        references: the models that it is about.
    """
    flags = ["--trust-model"] * trust.everything
    flags += ["--custom-objects"] * (trust.custom_objects is not None)
    if flags and all(reference.kind == "tflite" for reference in references):
        raise RecipeError(
            "has no effect: .tflite files cannot contain code",
            subject=flags[0],
            hint=f"leave {flags[0]} out",
        )


def expand_user(text: str) -> Path:
    """Return a path whose leading `~` is a home folder, if there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user, or nobody knows this one's home: a name like any other
        return Path(text)


def windows_hint(text: str) -> str:
    """Return where WSL has a Windows path, empty for any other."""
    if not (drive := _WINDOWS_DRIVE.match(text)):
        return ""
    rest = text[drive.end() :].replace("\\", "/")
    return f"shrink runs on Linux; under WSL this is /mnt/{drive[1].lower()}/{rest}"


def near_path(path: Path, folder: Path) -> str:
    """Return a path as seen from the folder, where it is near, else absolute."""
    resolved = path.resolve()
    near = os.path.relpath(resolved, folder.resolve())
    return str(resolved) if near.startswith("../..") else near


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; no name that a system refuses is one."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def looks_like_model(text: str) -> bool:
    """Whether a name can only mean a model's place, not a stage."""
    path_text, function = _split_function(text)
    return bool(function) or "/" in text or Path(path_text).suffix.lower() in (*_SUFFIXES, ".py")


def _hint(path: Path) -> str:
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.name[0] != "."]
    except (OSError, ValueError):
        beside = []
    near = near_file(path.name, beside)
    return f"did you mean {path.parent / near}?" if near else f"give {_FORMS}"


def _split_function(text: str) -> tuple[str, str | None]:
    path, separator, function = text.rpartition(":")
    if separator and path.endswith(".py"):
        return path, function or None
    return text, None


def _last_artifact(run: Path) -> ModelReference:
    from shrink.base import files
    from shrink.contract.report_file import read_report

    try:
        made = [(s.artifact, s.sha256) for s in read_report(run).stages if s.artifact]
    except InputError as error:
        message = f"the run's {REPORT_NAME} cannot be read: {error.message}"
        raise ModelError(message, subject=run, hint=error.hint) from error
    if not made:
        raise ModelError("this run has no artifact", subject=run, hint="run its recipe again")
    artifact = run / made[-1][0]
    if not artifact.is_file() or artifact.suffix not in _SUFFIXES:
        raise ModelError("the run's last artifact is missing", subject=artifact)
    if files.sha256(artifact) != made[-1][1]:
        raise ModelError(
            "the file was changed after the run's report was written",
            subject=artifact,
            hint="name the file itself to use it like any other model, or run the recipe again",
        )
    return ModelReference(_SUFFIXES[artifact.suffix], artifact)
