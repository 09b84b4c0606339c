"""Sentences of a seeded grammar, with an intent each, for a voice assistant.

`python recipes/data/sentences.py` writes sentences.csv beside this file.

A sentence is a template with its slots filled, between a beginning and an end that may be empty;
or, two times in five, two of them of which one is taken back: `call ben no wait lights on in the
hall`, `lights on in the hall and not call ben`. Which one is meant is told by the order of the
words alone. The templates of the test split are in no other split, and so are those of the
validation split: what is measured is whether a model knows the intent of phrases that it has not
seen.
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COUNTS = {"train": 4_000, "validation": 400, "test": 1_000}
"""Sentences of each split, as many of each intent."""

_SEED = 2_104
_SLOT = re.compile(r"\{(\w+)\}")

_SLOTS: Mapping[str, tuple[str, ...]] = {
    "room": ("kitchen", "bedroom", "hall", "garage", "bathroom", "living room", "office"),
    "place": ("home", "work", "the station", "the airport", "town", "the school", "the park"),
    "day": ("today", "tomorrow", "on monday", "on friday", "this weekend", "tonight"),
    "hour": ("six", "seven", "half past eight", "nine", "ten", "noon", "quarter to five"),
    "span": ("five minutes", "ten minutes", "half an hour", "two hours", "ninety seconds"),
    "name": ("anna", "ben", "my sister", "the boss", "maria", "dad", "the neighbours"),
    "music": ("jazz", "some rock", "my playlist", "the radio", "piano music", "the new album"),
    "thing": ("milk", "bread", "two apples", "coffee", "batteries", "soap"),
}
_BEGINNINGS = ("", "", "", "please", "could you", "can you please", "hey", "i want you to", "now")
_ENDS = ("", "", "", "please", "now", "for me", "thanks", "if you can")

_TAKEN_BACK = (
    "{other} no wait {meant}", "instead of {other} {meant}", "{meant} rather than {other}",
    "{meant} and not {other}",
)  # fmt: skip
_TAKEN_BACK_SHARE = 0.4

_TEMPLATES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lights_on": {
        "train": (
            "turn on the light in the {room}", "switch the {room} light on", "lights on in the "
            "{room}", "make it brighter in the {room}", "turn the {room} lights on at {hour}",
            "light up the {room}", "it is too dark in the {room}", "give me some light in the "
            "{room}", "do not leave the {room} dark", "put the lamp in the {room} on",
        ),
        "validation": ("switch on the {room} lamp", "make the {room} less dark"),
        "test": (
            "put on the light in the {room}", "i need the {room} light on",
            "the {room} is too dark",
            "switch the lamp on in the {room} at {hour}",
        ),
    },
    "lights_off": {
        "train": (
            "turn off the light in the {room}", "switch the {room} light off", "lights off in the "
            "{room}", "make it dark in the {room}", "turn the {room} lights off at {hour}",
            "it is too bright in the {room}", "i do not need the light in the {room}",
            "put the lamp in the {room} out", "no more light in the {room}", "darken the {room}",
        ),
        "validation": ("switch off the {room} lamp", "make the {room} less bright"),
        "test": (
            "put out the light in the {room}", "i need the {room} light off",
            "the {room} is too bright", "switch the lamp off in the {room} at {hour}",
        ),
    },
    "set_alarm": {
        "train": (
            "wake me at {hour} {day}", "set an alarm for {hour}",
            "i have to get up at {hour} {day}",
            "alarm at {hour} {day}", "make sure that i am up at {hour}", "let it ring at {hour}",
            "set the alarm {day} to {hour}", "do not let me sleep past {hour}",
            "get me up {day} at {hour}",
        ),
        "validation": ("i need an alarm at {hour}", "wake me up {day} at {hour}"),
        "test": (
            "make an alarm for {hour} {day}", "i have to be up {day} at {hour}",
            "let the alarm ring {day} at {hour}", "do not let me sleep {day} past {hour}",
        ),
    },
    "set_timer": {
        "train": (
            "set a timer for {span}", "tell me when {span} are over", "start a timer of {span}",
            "count down {span}", "remind me in {span}", "timer {span}", "let it ring in {span}",
            "wake me in {span}", "measure {span} from now",
        ),
        "validation": ("i need a timer for {span}", "count {span} down"),
        "test": (
            "make a timer for {span}", "let the timer ring in {span}", "start to count {span}",
            "tell me in {span} that it is time",
        ),
    },
    "weather": {
        "train": (
            "what is the weather like {day}", "will it rain {day}", "do i need a coat {day}",
            "how warm is it {day} at {place}", "is it going to snow {day}", "how cold will it be "
            "{day}", "weather for {place} {day}", "tell me the forecast for {day}",
            "is there sun {day} at {hour}",
        ),
        "validation": ("how is the weather {day}", "will there be snow {day}"),
        "test": (
            "tell me what the weather is {day}", "is it going to rain at {place} {day}",
            "how warm will it be at {hour}", "what is the forecast for {place}",
        ),
    },
    "route": {
        "train": (
            "how do i get to {place}", "take me to {place}", "how long is the way to {place}",
            "show the way from {place} to {place}", "which bus goes to {place}",
            "when do i have to leave for {place}", "how far is it to {place}",
            "is there traffic on the way to {place} {day}", "i want to go to {place} at {hour}",
        ),
        "validation": ("what is the way to {place}", "which train goes to {place}"),
        "test": (
            "show me how to get to {place}", "how long do i need to {place}", "when does the bus "
            "leave for {place}", "i have to go from {place} to {place} {day}",
        ),
    },
    "play_music": {
        "train": (
            "play {music}", "i want to hear {music}", "put {music} on", "turn {music} on in the "
            "{room}", "let me listen to {music}", "start {music}", "some music in the {room}",
            "play {music} at {hour}", "how about {music}",
        ),
        "validation": ("i would like {music}", "let {music} play"),
        "test": (
            "put on {music}", "i want to listen to {music} in the {room}", "turn on {music}",
            "let me hear {music} for {span}",
        ),
    },
    "stop_music": {
        "train": (
            "stop {music}", "i do not want to hear {music}", "turn {music} off in the {room}",
            "no more of {music}", "be quiet", "end {music} in {span}", "no music in the {room}",
            "do not play {music}", "make it quiet in the {room}",
        ),
        "validation": ("enough of {music}", "end {music}"),
        "test": (
            "turn off {music}", "i do not want to listen to {music}", "let {music} stop in {span}",
            "no more music in the {room}",
        ),
    },
    "message": {
        "train": (
            "tell {name} that i am late", "send {name} a message", "write to {name} that i am at "
            "{place}", "let {name} know that i leave at {hour}", "text {name} to bring {thing}",
            "ask {name} for {thing}", "call {name}", "tell {name} to wake me at {hour}",
            "ask {name} what the weather is like",
        ),
        "validation": ("text {name} that i am late", "ask {name} to call"),
        "test": (
            "send {name} that i leave at {hour}", "write {name} a message", "let {name} know what "
            "the weather is like", "tell {name} to bring {thing} {day}",
        ),
    },
    "shopping": {
        "train": (
            "put {thing} on the list", "we need {thing}", "add {thing} to my list", "buy {thing} "
            "{day}", "remind me to get {thing}", "there is no more {thing}",
            "i have to get {thing} at {place}", "order {thing}", "do not let me forget {thing}",
        ),
        "validation": ("write {thing} on the list", "order some {thing}"),
        "test": (
            "add {thing} and {thing} to the list", "we have no more {thing}", "i need {thing} "
            "{day}", "remind me to buy {thing} at {place}",
        ),
    },
}  # fmt: skip

INTENTS = tuple(sorted(_TEMPLATES))
"""Names of the intents by label."""


@dataclass(frozen=True)
class Sentences:
    """Sentences with what they ask for.

    Attributes:
        texts: small letters, words with a space between.
        labels: places in `INTENTS`.
        templates: which each was made of, of two the one that is meant.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    templates: tuple[str, ...]


def make_sentences(split: str, count: int) -> Sentences:
    """Return so many sentences of a split, the intents in turn.

    Args:
        split: train, validation or test; each has templates of its own.
        count: number of sentences; some may be equal.
    """
    draw = random.Random(f"{_SEED} {split}")  # no secret
    texts, templates = [], []
    labels = tuple(index % len(INTENTS) for index in range(count))
    for label in labels:
        template = _choice(draw, _TEMPLATES[INTENTS[label]][split])
        meant = _filled(draw, template)
        if draw.random() < _TAKEN_BACK_SHARE:
            away = 1 + int(draw.random() * (len(INTENTS) - 1))
            other = _choice(draw, _TEMPLATES[INTENTS[(label + away) % len(INTENTS)]][split])
            form = _choice(draw, _TAKEN_BACK)
            texts.append(form.format(meant=meant, other=_filled(draw, other)))
        else:
            parts = (_choice(draw, _BEGINNINGS), meant, _choice(draw, _ENDS))
            texts.append(" ".join(part for part in parts if part))
        templates.append(template)
    return Sentences(tuple(texts), labels, tuple(templates))


def _filled(draw: random.Random, template: str) -> str:
    return _SLOT.sub(lambda slot: _choice(draw, _SLOTS[slot[1]]), template)


def _choice(draw: random.Random, options: tuple[str, ...]) -> str:
    # `random()` alone is the same in every version of Python.
    return options[int(draw.random() * len(options))]


def write(path: Path) -> None:
    """Write the sentences of all splits as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("split", "label", "text", "template"))
        for split, count in COUNTS.items():
            made = make_sentences(split, count)
            for row in zip(made.labels, made.texts, made.templates, strict=True):
                writer.writerow((split, INTENTS[row[0]], *row[1:]))


if __name__ == "__main__":
    write(Path(__file__).with_suffix(".csv"))
