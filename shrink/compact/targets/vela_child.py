"""Child process: compile a file with Vela, Arm's compiler for the Ethos-U NPUs."""

from __future__ import annotations

from dataclasses import dataclass

from shrink.base.child import Channel, serve

MODULE = "shrink.compact.targets.vela_child"


@dataclass(frozen=True)
class VelaRequest:
    """What to compile.

    Attributes:
        path: the .tflite file.
        folder: to write the compiled file, and the table of its figures, into.
        accelerator: by Vela's name.
    """

    path: str
    folder: str
    accelerator: str


def compile_file(request: VelaRequest, _: Channel) -> None:
    """Compile; what Vela prints is the parent's to read, and its exit code that of the child."""
    from ethosu.vela import vela

    words = ["--accelerator-config", request.accelerator, "--output-dir", request.folder]
    code = vela.main([request.path, *words, "--show-cpu-operations"])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    serve({VelaRequest: compile_file})
