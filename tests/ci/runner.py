"""Runs the steps of action.yml as GitHub's runner would, in a shell, with what tools it has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_GH = """#!/usr/bin/env bash
# Stands for GitHub's command: artifacts and comments are files below $HUB.
set -eu
case "$1 $2" in
  "run list") for kept in "$HUB"/*-main-report; do [ ! -d "$kept" ] || echo 7; done | head -n 1 ;;
  "run download") cp -r "$HUB/$5" "$7" ;;
  "api --paginate")  # comments: one file each, the number its name
    for one in "$HUB"/comments/*; do
      [ ! -f "$one" ] || printf '%s\t%s\n' "$(basename "$one")" "$(tr '\n' ' ' < "$one")"
    done ;;
  "api --silent")
    one="$HUB/comments/${5##*/}"; test -f "$one"; cat "${7#body=@}" > "$one" ;;
  "pr comment")
    mkdir -p "$HUB/comments"; cat "$5" > "$HUB/comments/$(ls "$HUB/comments" | wc -l)$3" ;;
  *) exit 64 ;;
esac
"""


@dataclass
class Checkout:
    """A repository's checkout on a runner.

    Attributes:
        folder: the working directory.
        hub: what stands for GitHub: artifacts by name, and comments by number.
        tools: of the PATH, before all others.
        environment: more of it.
        log: what steps printed.
        saved: keys of the caches that were saved.
    """

    folder: Path
    hub: Path
    tools: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    saved: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.folder, self.hub, self.tools):
            folder.mkdir(parents=True, exist_ok=True)
        self.tool("gh", _GH)

    def tool(self, name: str, script: str) -> None:
        """Put a command on the PATH."""
        path = self.tools / name
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)

    def event(self, name: str, inputs: Mapping[str, str]) -> dict[str, Any]:
        """Run the action for a `push` or a `pull_request`; return exit code, outputs, summary."""
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        given = {key: str(one.get("default", "")) for key, one in action["inputs"].items()}
        known = {f"inputs.{key}": value for key, value in {**given, **inputs}.items()}
        known |= {
            "github.event_name": name,
            "github.action_path": str(ROOT),
            "github.token": "token",
            "github.workflow": "model",
            "github.sha": "0123",
            "github.repository": "own/model",
            "github.event.pull_request.number": "12" if name == "pull_request" else "",
            "runner.os": "Linux",
        }
        temporary = self.hub.parent / f"temporary-{name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        code = 0
        for step in action["runs"]["steps"]:
            condition = str(step.get("if", "true"))
            if condition != "always()" and (code or not holds(condition, known)):
                continue
            if "uses" in step:
                self._use(step, known)
            elif step["id"] != "install":
                code = self._shell(step, known, temporary)
        summary = temporary / "summary"
        outputs = {key: value for key, value in known.items() if key.startswith("steps.run.")}
        text = summary.read_text(encoding="utf-8") if summary.exists() else ""
        return {"code": code, "outputs": outputs, "summary": text}

    def _use(self, step: Mapping[str, Any], known: Mapping[str, str]) -> None:
        """Keep artifacts, note saved caches; other actions of GitHub's do nothing here."""
        if step["uses"].startswith("actions/cache/save@"):
            self.saved.append(substituted(step["with"]["key"], known))
        if not step["uses"].startswith("actions/upload-artifact@"):
            return
        source = self.folder / substituted(step["with"]["path"], known)
        target = self.hub / substituted(step["with"]["name"], known)
        shutil.rmtree(target, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.is_file():
            target.mkdir()
            shutil.copy(source, target)

    def _shell(self, step: Mapping[str, Any], known: dict[str, str], temporary: Path) -> int:
        script, output = temporary / "step.sh", temporary / "output"
        script.write_text(step["run"], encoding="utf-8")
        output.write_text("", encoding="utf-8")
        own = {key: substituted(str(value), known) for key, value in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
                "HUB": str(self.hub),
                "GITHUB_ACTIONS": "true",
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(temporary / "summary"),
                "RUNNER_TEMP": str(temporary),
                **self.environment,
                **own,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.log += done.stdout + done.stderr
        for line in output.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{key}"] = value
        return done.returncode


def substituted(text: str, known: Mapping[str, str]) -> str:
    """Return text with the value of each `${{ expression }}`."""
    return _EXPRESSION.sub(lambda found: _value(found[1], known), text)


def holds(condition: str, known: Mapping[str, str]) -> bool:
    """Whether a condition of comparisons, joined by `&&`, holds."""
    return all(_comparison(part.strip(), known) for part in condition.split("&&"))


def _comparison(text: str, known: Mapping[str, str]) -> bool:
    if text == "true":
        return True
    left, sign, right = re.split(r"\s+(==|!=)\s+", text)
    return (_value(left, known) == _value(right, known)) == (sign == "==")


def _value(expression: str, known: Mapping[str, str]) -> str:
    for one in expression.split("||"):
        name = one.strip()
        value = name.strip("'") if name.startswith("'") else known.get(name, "")
        value = substituted(value, known) if "${{" in value else value
        if value:
            return value
    return ""
