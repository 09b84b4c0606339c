"""The application object, and the one place that turns errors into exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType

import typer

from shrink.cli import data, recipes, reports, run, tools, validate, verbs
from shrink.console import Console
from shrink.errors import InternalError, Interrupted, ShrinkError, Terminated


def _words() -> list[str]:
    """Return the words of the command line, also while a shell asks for a completion."""
    return [*sys.argv[1:], *os.environ.get("COMP_WORDS", "").split()]


# Plugins of pydantic are looked for in every installed package; shrink has no use for them.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="shrink",
    help="Prune, distill and quantize Keras models to TFLite, inside a memory budget, "
    "with a report of what every step cost.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
run.register(app)
verbs.register(app, _words())
tools.register(app)
reports.register(app)
data.register(app)
validate.register(app)
recipes.register(app)


def main() -> None:
    """Run the command line and exit with the documented code."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    console = Console(as_json="--json" in sys.argv)
    try:
        app()
    except ShrinkError as error:
        console.error(error)
        _leave(error.exit_code)
    except BrokenPipeError:
        _leave(0)
    except Exception as error:
        trace = traceback.format_exc() if os.environ.get("SHRINK_DEBUG") else ""
        if trace:
            console.say(trace)
        console.error(
            InternalError(
                f"{type(error).__name__}: {error}",
                hint="this is a bug in shrink; run again with SHRINK_DEBUG=1 and report it",
            )
        )
        _leave(InternalError.exit_code)


def _leave(code: int) -> None:
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one is enough; leaving takes a moment
    raise Interrupted("interrupted; run the same command again to continue")


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated("terminated; run the same command again to continue")
