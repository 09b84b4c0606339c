"""Models from files and from functions, as tf-keras models."""

from __future__ import annotations

import contextlib
import inspect
import os
import resource
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, ShrinkError, StageError, first_line
from shrink.base.keras_internals import is_functional, parts_of
from shrink.base.types import Json
from shrink.contract.model_source import NO_TRUST, ModelSource, Trust
from shrink.graph.scale import check_scale, scaled, student_notes
from shrink.model.archive import weights_where_they_lie
from shrink.model.keras3.convert import (
    changes_in_words,
    compare_import,
    compare_outputs,
    import_keras3,
)
from shrink.model.opaque import graph_model, subclassed_model
from shrink.model.reference import holds_layers
from shrink.model.scan import check_model_file, keras_version
from shrink.model.scan_files import check_archive
from shrink.model.user_modules import blaming, custom_objects, function_of
from shrink.tflite.arena import replacement_hint

if TYPE_CHECKING:
    from shrink.model.tfmot.conversion import Imported

_NO_CLASSES: Mapping[str, type] = {}
_CAME_AS, _NOTE = "shrink_imported", "shrink_import_note"
_LOAD_HINTS = {
    "file": "save it again with tf-keras 2 (model.save('model.keras'))",
    "folder": "save the Keras model itself (model.save('model.keras'), not model.export), or give "
    "the function that builds it (file.py:build); `shrink quantize` takes it as it is",
}


def load_source(source: ModelSource, as_graph: bool = False) -> keras.Model:
    """Return the model that a step's input names.

    Args:
        source: the model. Its arguments are given to a function that takes them; else the model
            is scaled by them (`shrink.graph.scale`).
        as_graph: whether a model of which only a graph is known will do: it is one layer then.

    Raises:
        ModelError: unreadable, refused, or not a tf-keras model.
        RecipeError: a scale above 1 of a model that has no builder for it.
    """
    path, arguments = source.path, dict(source.arguments)
    if source.function is not None:
        scale = _left_by_builder(source, arguments)
        own = {name: value for name, value in arguments.items() if name not in scale}
        model = build_model(path, source.function, own, as_graph)
        arguments = scale
    elif as_graph and path.is_dir() and not holds_layers(path):
        check_model_file(path, source.trust)
        with bounded_loading(path):
            model = graph_model(path)
    else:
        model = load_model(path, source.trust)
    if not arguments:
        return model
    student = scaled(model, arguments)
    notes = student_notes(model, student, inherit=arguments.get("inherit", 0) > 0)
    student.__dict__[_NOTE] = "; ".join(filter(None, [model.__dict__.get(_NOTE), *notes]))
    return student


def check_student(model: keras.Model, source: ModelSource, arguments: Mapping[str, float]) -> None:
    """Raise where a student cannot be made of this model by these arguments, before any training.

    Args:
        model: as `load_source` returned it.
        source: what it was loaded from.
        arguments: of the student; with `inherit` of one that is cut from a later state of the
            model, else of one that the same function builds.

    Raises:
        ModelError: there is nothing that could be left out.
        RecipeError: a scale above 1 of a model that has no builder for it.
    """
    if source.function is not None and "inherit" not in arguments:
        arguments = _left_by_builder(source, arguments)
    check_scale(model, arguments)


def _left_by_builder(source: ModelSource, arguments: Mapping[str, float]) -> dict[str, float]:
    """Return the arguments that the source's function does not take."""
    taken = _arguments_of(source.path, str(source.function))
    return {n: v for n, v in arguments.items() if taken is not None and n not in taken}


def load_model(path: Path, trust: Trust = NO_TRUST) -> keras.Model:
    """Return the model saved in a `.keras` or `.h5` file, or in a SavedModel folder.

    A file of Keras 3 is rebuilt from tf-keras' layers.

    Args:
        path: of the model.
        trust: custom objects to load it with, or that it is trusted whatever it holds.

    Raises:
        ModelError: it cannot be read, or holds what shrink refuses to load.
    """
    content = check_model_file(path, trust)
    if path.is_dir() and not holds_layers(path):
        raise ModelError(
            "this SavedModel holds a graph without Keras' layers",
            subject=path,
            hint=_LOAD_HINTS["folder"],
        )
    objects = custom_objects(trust.custom_objects)
    if content.from_keras3:
        with keras.saving.custom_object_scope(objects), bounded_loading(path):
            return import_keras3(path, content.config)
    unsafe = {"safe_mode": False} if trust.everything and not path.is_dir() else {}

    def load(file: Path, classes: Mapping[str, type] = _NO_CLASSES) -> keras.Model:
        known = {**classes, **objects}
        with weights_where_they_lie(file):
            model = keras.models.load_model(file, custom_objects=known, compile=False, **unsafe)
        for layer in parts_of(model) if isinstance(model, keras.Model) else ():
            if isinstance(layer, keras.layers.Discretization):
                layer.finalize_state()  # Keras restores its summary, and no boundaries from it
        return model

    try:
        with bounded_loading(path):
            model = _without_tfmot(path, content.config, load) if content.of_tfmot else load(path)
    except ShrinkError:
        raise
    except Exception as error:  # Keras raises whatever its layers raise
        raise ModelError(
            f"Keras cannot load this model: {first_line(error) or type(error).__name__}",
            subject=path,
            hint=_LOAD_HINTS["folder" if path.is_dir() else "file"],
        ) from error
    return _checked(model, path)


def _without_tfmot(
    path: Path, config: Json, load: Callable[[Path, Mapping[str, type]], keras.Model]
) -> keras.Model:
    """Return a model of tfmot as a plain one, which remembers what it was."""
    from shrink.model.tfmot.conversion import import_tfmot, load_wrapped

    imported = import_tfmot(_checked(load_wrapped(path, config, load), path), path)
    imported.model.__dict__[_CAME_AS] = imported  # past Keras, which would track what is in it
    return imported.model


def imported_from_tfmot(model: keras.Model) -> Imported | None:
    """Return what a model was in tfmot, as `load_source` returned it; None for any other."""
    found: Imported | None = model.__dict__.get(_CAME_AS)
    return found


def import_note(model: keras.Model, source: ModelSource) -> str:
    """Return how near a model of Keras 3 or of tfmot, or a scaled one, comes to what it was.

    Empty for any other.

    Args:
        model: as `load_source` returned it.
        source: what it was loaded from.

    Raises:
        ModelError: it computes something else than Keras 3 does.
    """
    if (imported := imported_from_tfmot(model)) is not None:
        return imported.note
    note = str(model.__dict__.get(_NOTE, ""))
    if note or source.arguments:
        return note
    path = source.path
    if source.kind not in ("keras", "h5") or not keras_version(path).startswith("3"):
        return ""
    content = check_model_file(path, source.trust)  # again, as Keras 3 itself loads it now
    with bounded_loading(path):
        return _with_changes(compare_import(model, path), model, content.config)


def _with_changes(note: str, model: keras.Model, config: Json) -> str:
    changes = changes_in_words(model, config)
    return f"{note}; {changes}" if changes else note


def build_model(
    path: Path, function: str, arguments: Mapping[str, float], as_graph: bool = False
) -> keras.Model:
    """Return the model that `function` of the Python file `path` builds.

    Args:
        path: a file that the recipe or the command names; its code runs here.
        function: the function's name. A model of Keras 3 is rebuilt with tf-keras' layers.
        arguments: keyword arguments such as `width`.
        as_graph: whether a subclassed model will do; it is traced.

    Raises:
        ModelError: the function raises, or returns no functional or sequential model.
    """
    build = function_of(path, function)
    with blaming(f"{function}() raised ", path, None, ModelError):
        model = build(**arguments)
    if any(each.__module__.startswith("keras.") for each in type(model).__mro__):
        return _from_keras3(model, path, function)
    subclassed = isinstance(model, keras.Model) and not is_functional(model)
    if as_graph and subclassed:
        return subclassed_model(model, path)
    return _checked(model, path)


def _from_keras3(model: Any, path: Path, function: str) -> keras.Model:
    """Return the tf-keras model that computes what a model in memory of Keras 3 computes."""
    names = {each.__name__ for each in type(model).__mro__}
    if "Model" not in names:
        return _checked(model, path)
    if not names & {"Functional", "Sequential"}:
        raise _subclassed(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.keras"
        try:
            model.save(file)
        except Exception as error:
            raise ModelError(
                f"{function}() returns a Keras 3 model that cannot be saved: {first_line(error)}",
                subject=path,
                hint="build it with layers that Keras can save, or with tf_keras",
            ) from error
        try:
            config = check_archive(file)[1]
            converted = import_keras3(file, config)
            note = _with_changes(compare_outputs(converted, model), converted, config)
        except ModelError as error:
            error.subject = str(path)
            raise
    converted.__dict__[_NOTE] = note
    return converted


def _arguments_of(path: Path, function: str) -> set[str] | None:
    """Return the names of a builder's arguments, None where it takes any."""
    taken = inspect.signature(function_of(path, function)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return None
    return set(taken)


def _checked(model: object, path: Path) -> keras.Model:
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"this is a {type(model).__module__}.{type(model).__name__}, not a Keras model",
            subject=path,
        )
    if not is_functional(model):
        raise _subclassed(
            path,
            "; as it is, it can be the teacher of a student that has one, and `shrink export "
            "--format savedmodel` makes a graph of it that `shrink quantize` takes",
        )
    return model


def _subclassed(path: Path, more: str = "") -> ModelError:
    return ModelError(
        "a subclassed model has no graph of layers to work on",
        subject=path,
        hint=f"build it with keras.Model(inputs, outputs) or keras.Sequential{more}",
    )


def check_stateless(model: keras.Model, path: Path) -> None:
    """Raise `ModelError` if a layer keeps its state from one batch to the next.

    Examples are independent here; measured in sequence, each would begin from the state of another.
    The TFLite converter cannot keep such a state either.
    """
    layers = parts_of(model) if isinstance(model, keras.Model) else ()
    names = [x.name for x in layers if isinstance(x, keras.layers.RNN) and x.stateful]
    if names:
        raise ModelError(
            f"recurrent layers with stateful=True keep their state between examples: "
            f"{', '.join(names)}",
            subject=path,
            hint="build the model with stateful=False and set_weights(old.get_weights()); for "
            "streaming, make the state an input (initial_state=...) and an output "
            "(return_state=True), which the firmware carries from call to call",
        )


_WITHOUT_MICRO_KERNEL = {"Conv3D": "CONV_3D", "Conv3DTranspose": "CONV_3D_TRANSPOSE"}


def check_micro(model: keras.Model, stage: str) -> None:
    """Raise `StageError` for a layer that TFLite Micro has no kernel for, whatever its type."""
    for layer in parts_of(model):
        kind = _WITHOUT_MICRO_KERNEL.get(type(layer).__name__)
        if getattr(layer, "activation", None) is keras.activations.gelu:
            kind = "GELU"
        if kind is not None:
            raise StageError(
                f"TFLite Micro has no kernel for {kind}, and {stage} needs one",
                subject=layer.name,
                hint=f"{replacement_hint(kind)}, or run it in LiteRT only (quantize with "
                "target: litert)",
            )


_ROOM_BYTES = 2 << 30
_PER_CORE_BYTES = 80 << 20
"""Address space that a thread reserves: its stack, and an arena of the C library."""
_COPIES = 8
_TIME_S = 300.0
_BYTES_PER_S = 10e6


@contextlib.contextmanager
def bounded_loading(path: Path) -> Iterator[None]:
    """Let what stands in the block take a few times the file's size in memory, and minutes.

    A small file can ask for any amount of either: by the sizes of its layers. Memory beyond the
    bound is refused to TensorFlow, which raises; after the time the process ends by SIGALRM.
    With GPUs memory is not bounded: their driver reserves address space without end.

    Args:
        path: a model's file or folder.
    """
    size = _size_bytes(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    limit = (int(pages) * resource.getpagesize()) + room_bytes(size)
    if not on_gpu and soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    signal.setitimer(signal.ITIMER_REAL, _TIME_S + size / _BYTES_PER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def room_bytes(file_bytes: int) -> int:
    """Return the address space that loading a file of this size may take."""
    return _ROOM_BYTES + _PER_CORE_BYTES * (os.cpu_count() or 1) + _COPIES * file_bytes


def _size_bytes(path: Path) -> int:
    """Return the bytes of a file or folder, of an archive those that it unpacks to."""
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
