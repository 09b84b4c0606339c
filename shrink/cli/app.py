"""The application object, and the one place that turns errors into exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated

import typer

from shrink import __version__
from shrink.base.console import Console, prepare_streams
from shrink.base.errors import (
    InternalError,
    Interrupted,
    RecipeError,
    ResourceError,
    ShrinkError,
    Terminated,
)
from shrink.base.removal import replacement
from shrink.cli.options import EXAMPLES, HELP_ALL, CheckedCommand, epilog, help_hint, meant

_USAGE_CODE = RecipeError.exit_code
_ENVIRONMENT = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG),
}
"""What the system says where nothing that shrink does would help."""


COMMANDS = {
    "run": (
        "run",
        "Run a recipe, or a sweep of several runs.",
    ),
    "train": ("verbs", "Train a model, or continue from its weights."),
    "distill": ("verbs", "Train a student to follow a teacher."),
    "prune": ("verbs", "Remove the weights that matter least, then fine-tune."),
    "cluster": ("verbs", "Cluster weights to a few values, then fine-tune."),
    "quantize": ("verbs", "Convert to TFLite under a quantization scheme."),
    "compact": (
        "verbs",
        "Rewrite a .tflite file for less RAM, with equal outputs.",
    ),
    "evaluate": ("verbs", "Measure accuracy, size, memory and latency of a model."),
    "search": (
        "search",
        "Find the best recipe within the limits of a device.",
    ),
    "profile": ("tools", "Measure the memory of a training step (random inputs, Adam)."),
    "inspect": ("tools", "Show layers or operators: dtypes, shapes, sparsity."),
    "export": (
        "tools",
        "Export to tf-keras, Keras 3, a SavedModel or a C array.",
    ),
    "bench": (
        "tools",
        "Measure latency and memory of a .tflite file in LiteRT.",
    ),
    "report": (
        "reports",
        "Print the report of a run again, and render its files.",
    ),
    "diff": ("reports", "Show what changed between two runs: stages, figures, gates."),
    "compare": (
        "reports",
        "Compare runs and sweeps in a table and plots.",
    ),
    "data": ("data", "Inspect data before training on it."),
    "cache": ("cache", "List and clean the cache."),
    "validate": (
        "recipes",
        "Check recipes without running them.",
    ),
    "schema": ("recipes", "Print the JSON Schema of a recipe, for editors."),
    "recipes": ("recipes", "List the bundled recipes, each runnable by its name."),
    "init": ("recipes", "Write a first recipe with gates for a model and its data."),
    "doctor": (
        "tools",
        "Check the installation; add the output to bug reports.",
    ),
}
"""The commands, each with its module of this package and its line of help."""


# Plugins of pydantic are looked for in every installed package; shrink has no use for them.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def _print_version(wanted: bool) -> None:
    if wanted:
        Console().print(f"shrink {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    pass


def build(words: Sequence[str]) -> typer.Typer:
    """Return the application; the module of a command is imported where it is among `words`."""
    app = typer.Typer(
        name="shrink",
        help="Prune, distill and quantize Keras models to TFLite, inside a memory budget, "
        "with a report of what every step cost.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, (family, text) in COMMANDS.items():
        command: Callable[..., None] | typer.Typer = _not_imported
        if name in words:
            module = importlib.import_module(f"shrink.cli.{family}")
            made = getattr(module, "command", None)
            command = getattr(module, name) if made is None else made(name, words)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=text)
        else:
            end = epilog(name) if name in EXAMPLES else None
            app.command(name, cls=CheckedCommand, help=text, epilog=end)(command)
    return app


def _not_imported() -> None:
    pass


_COMPLETED = f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}"
app = build([*sys.argv[1:], *_COMPLETED.split()])
"""For the words of the command line, or of the one that bash, or zsh or fish, completes."""


def main() -> None:
    """Run the command line and exit with the documented code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    console = Console(as_json="--json" in sys.argv)
    try:
        prepare_streams()
        words = ["--help" if word == HELP_ALL else word for word in sys.argv[1:]]
        code = app(words, standalone_mode=False, prog_name="shrink")
    except Exception as error:
        sys.exit(_failed(error, console))
    sys.exit(code)


def _failed(error: Exception, console: Console) -> int:
    """Say what went wrong and return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # there is nothing left to clean up
    if _is_help(error):
        console.say(str(error))
        return _USAGE_CODE
    if not isinstance(error, ShrinkError) and os.environ.get("SHRINK_DEBUG"):
        console.say("".join(traceback.format_exception(error)))
    typed = typed_error(error)
    _annotate(typed)
    try:
        console.error(typed)
    except ResourceError as lost:  # stdout: the document of --json has nowhere to go
        console.as_json = False
        console.error(lost)
    return typed.exit_code


def _annotate(error: ShrinkError) -> None:
    """Show the error at its place in the recipe, where GitHub's runner reads along."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from shrink.report.ci import error_annotations

    for line in error_annotations(error):
        Console().say(line)


def typed_error(error: Exception) -> ShrinkError:
    """Return `error` itself, or the typed error that says what it means."""
    if isinstance(error, ShrinkError):
        return error
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        # A flag without its value is refused by a parser that does not know whose flag it is.
        command = context.command_path if context is not None else _command_of(sys.argv[1:])
        message, near = meant(error.format_message().rstrip(".").replace("int range", "integer"))
        if message.startswith("No such command"):
            words = [word for word in sys.argv[1:] if not word.startswith("-")]
            removed = (f"shrink {' '.join(words[:count])}" for count in (2, 1))
            if instead := replacement(*removed):
                removed_name = message.removeprefix("No such command").split(". ")[0]
                message, near = f"Removed command{removed_name}", instead
        return RecipeError(message, subject=command, hint=near or help_hint(command))
    if isinstance(error, ModuleNotFoundError):
        from shrink.base.packages import missing_package

        if (missing := missing_package(error)) is not None:
            return missing
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT:
        return ResourceError(
            f"the system refuses: {error.strerror}",
            subject=error.filename,
            hint="free some space, or choose another place with --output or SHRINK_CACHE_DIR",
        )
    return InternalError(
        f"{type(error).__name__}: {error}",
        hint="this is a bug in shrink; run again with SHRINK_DEBUG=1 and report it",
    )


def _is_help(error: Exception) -> bool:
    """Whether a command without arguments asks for its help to be shown."""
    return isinstance(error, typer.TyperException) and str(error).startswith("Usage:")


def _command_of(words: Sequence[str]) -> str:
    """Return the command that the words of a command line begin with, such as `shrink prune`."""
    path, group = "shrink", app
    for word in words:
        if word in {one.name for one in group.registered_commands}:
            return f"{path} {word}"
        inner = {one.name: one.typer_instance for one in group.registered_groups}.get(word)
        if inner is None:
            break
        path, group = f"{path} {word}", inner
    return path


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # one is enough; leaving takes a moment
    if number == signal.SIGINT:
        raise Interrupted("interrupted; run the same command again to continue")
    raise Terminated("terminated; run the same command again to continue")
