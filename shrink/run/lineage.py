"""Where a model comes from, and what it was trained and tested on.

It is under `lineage` in an artifact's record (`shrink.contract.usage`): the splits that it was
trained on, and the baseline of the run that its line began with. The cache alone also has, under
`code`, the Python files that were named for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrink.base import files
from shrink.base.cache import cache_root, lineage_path
from shrink.base.errors import MAY_HAVE_BEEN_TRAINED_ON, OVERLAP, ReportWarning, ResourceError
from shrink.base.foreign import Json, JsonObject
from shrink.contract.codec import ContractError, from_plain, left_out, to_plain
from shrink.contract.details import Details
from shrink.contract.examples import SPLITS
from shrink.contract.record import as_base, record
from shrink.contract.report import DataSet, Origin
from shrink.contract.result import HeldOut, StepResult, scores_from_plain
from shrink.contract.usage import complete_usage, identity, record_entries
from shrink.data.config import NOT_OF_SPLITS, DataConfig
from shrink.recipe.plan import BASELINE, Plan, Step
from shrink.report.headline import Continuation
from shrink.run.store import Store, StoredStep


def describe_data(config: DataConfig, fingerprint: str, counted: StepResult) -> DataSet:
    """Return what a report says of its data.

    Args:
        config: the `data` section; of its path only the last name is reported, as a report travels.
        fingerprint: of what the source holds.
        counted: the result of the first finished stage; `examples` and `classes` are None without.
    """
    return DataSet(
        source=config.source,
        path=Path(config.path).name if config.path else None,
        fingerprint=fingerprint,
        examples=counted.data.examples,
        classes=counted.data.classes,
        test_examples=counted.splits.test_examples,
    )


LEFT_OUT = "trained-examples-left-out"
_HINT = (
    "give a test split of its own: x_test and y_test in an .npz file, a folder test beside train, "
    "or a file of examples that were kept apart"
)


def describe_splits(splits: Splits, held_out: HeldOut) -> tuple[ReportWarning | None, str | None]:
    """Return a warning, or a note, or neither.

    Args:
        splits: how the data was divided, and what is known of the models.
        held_out: what a worker found of it.
    """
    if splits.lineage is None:  # no model was trained before
        return None, None
    if count := (held_out.left_out or {}).get("test"):
        runs = ", ".join(dict.fromkeys(link.run for link in splits.lineage.links))
        message = (
            f"{count:,} test examples were left out, because the model was trained on them "
            f"({runs}); {held_out.test:,} remain"
        )
        return ReportWarning(LEFT_OUT, message, _HINT), None
    if splits.lineage.outside:
        return _unknown(
            "shrink does not know which examples the model was trained on, if any", held_out
        )
    if splits.earlier and not held_out.comparable:
        return _unknown(
            "the model was trained on data that cannot be compared with this",
            held_out,
        )
    if splits.earlier:
        return _unknown(
            "the model was trained on other data; none of its "
            f"{held_out.trained_on:,} examples is a test example here, byte for byte",
            held_out,
        )
    if splits.same:
        return (
            None,
            "test split: the same as in the run that made the model, which did not train on it",
        )
    return None, None


_OVERLAP_HINT = (
    "set data.overlap: leave_out (--overlap leave_out), or remove the copies from the data"
)


def describe_shared(held_out: HeldOut) -> tuple[list[ReportWarning], str | None]:
    """Return a warning for each two splits that share examples; a note where these are left out."""
    if held_out.shared_left_out:
        counts = [f"{s.count:,} of {s.split} that are also in {s.other}" for s in held_out.shared]
        return [], f"examples left out (data.overlap): {'; '.join(counts) or 'none'}"
    warnings = []
    for shared in held_out.shared:
        what = "test metrics" if shared.split == "test" else "choices by validation"
        message = (
            f"{shared.count:,} of {shared.total:,} examples of the {shared.split} split are in the "
            f"{shared.other} split too, such as {shared.example}: {what} are optimistic"
        )
        warnings.append(ReportWarning(OVERLAP, message, _OVERLAP_HINT))
    return warnings, None


def _unknown(why: str, held_out: HeldOut) -> tuple[ReportWarning | None, str | None]:
    if held_out.test_given:
        return None, f"test split: taken from the data; {why}"
    message = f"test metrics may be too high: {why}, and the data names no test split"
    return ReportWarning(MAY_HAVE_BEEN_TRAINED_ON, message, _HINT), None


_VERSION = 1


@dataclass(frozen=True)
class Link:
    """A data set as one run divided it.

    Attributes:
        run: name of the run's recipe.
        data: the fingerprint of the data, and the keys that decide which examples there are.
        seed: of the splits.
        splits: SHA-256 of the file that says which example is in which split.
    """

    run: str
    data: Mapping[str, Json]
    seed: int
    splits: str


@dataclass(frozen=True)
class SplitIdentity:
    """What decides the test examples of a run.

    Attributes:
        data: as of a `Link`.
        seed: of the splits.
        earlier: SHA-256 of each earlier run's splits, which are left out.
    """

    data: Mapping[str, Json]
    seed: int
    earlier: tuple[str, ...]


@record
class LineOrigin(Origin):
    """The baseline that a line of runs begins with.

    Attributes:
        artifact: `identity` of the artifact.
        scores: name of the file with its scores, as `Store.keep` has kept it.
        tested_on: what decides its test examples, and their order.
        test_examples: hash of them, whatever their order.
    """

    artifact: str | None = None
    scores: str | None = None
    tested_on: SplitIdentity | None = None
    test_examples: str | None = left_out(None)


@dataclass(frozen=True)
class Lineage:
    """Where an artifact comes from.

    Attributes:
        links: what it was trained on, the earliest first.
        outside: whether something that was trained outside of shrink's runs went into it.
        origin: the baseline of the first run, from `_origin_of`.
    """

    links: tuple[Link, ...] = ()
    outside: bool = False
    origin: LineOrigin | None = None

    def and_(self, other: Lineage) -> Lineage:
        """Return both: a student and its teachers."""
        links = tuple(dict.fromkeys(link.splits for link in (*self.links, *other.links)))
        known = {link.splits: link for link in (*other.links, *self.links)}
        origin = self.origin or other.origin
        return Lineage(tuple(known[s] for s in links), self.outside or other.outside, origin)

    def to_dict(self) -> JsonObject:
        """Return plain data."""
        return {"version": _VERSION, **to_plain(self)}

    @classmethod
    def of(cls, value: object) -> Lineage | None:
        """Return what `to_dict` made plain, or None where it did not."""
        if not isinstance(value, Mapping) or value.get("version") != _VERSION:
            return None
        if not vars(cls()).keys() <= value.keys():  # not a word on it is no word for it
            return None
        try:
            return from_plain(cls, value)
        except ContractError:
            return None


@dataclass(frozen=True)
class Splits:
    """How the data is divided in a run that goes on from others.

    Attributes:
        seed: of the splits: that of the earlier run with the same data.
        earlier: the SHA-256 of each earlier run's splits that are not these.
        files: where they are.
        lineage: of all models that the recipe names; None where it names none that is trained.
        same: whether these are the splits of an earlier run.
        fractions: keys of `data` as that run had them, where `data.test_split` is 1.
    """

    seed: int
    earlier: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    lineage: Lineage | None = None
    same: bool = False
    fractions: Mapping[str, Json] = field(default_factory=dict)

    def data(self, config: DataConfig) -> DataConfig:
        """Return a `data` section with these fractions."""
        return config.model_copy(update=self.fractions)


def splits_of(plan: Plan, data_fingerprint: str, store: Store) -> Splits:
    """Return how a plan's data is divided, so that nothing is tested on that was trained on.

    Where a model comes from a run on the same data, its splits are taken again, whatever the seed.
    """
    seed = plan.recipe.training.seed
    found, places = _lineage_of(plan, store)
    if found is None:
        return Splits(seed)
    alike = [
        one
        for one in found.links
        if one.data.get("fingerprint") == data_fingerprint and _fractions(one) is not None
    ]
    seed = alike[-1].seed if alike else seed
    fractions = dict[str, Json]()
    if alike and plan.recipe.data.test_split == 1:
        fractions = _fractions(alike[-1]) or {}
    data = plan.recipe.data.model_copy(update=fractions)
    wanted = data_identity(data, data_fingerprint)
    same = [one for one in alike if one.seed == seed and one.data == wanted]
    others = [one for one in found.links if not same or one.splits != same[-1].splits]
    there = [one for one in others if one.splits in places]
    # What was trained on and can no longer be read is as good as trained elsewhere.
    lineage = replace(found, outside=found.outside or len(there) < len(others))
    earlier = tuple(one.splits for one in there)
    return Splits(seed, earlier, places, lineage, bool(same), fractions)


def _fractions(link: Link) -> JsonObject | None:
    """Return the keys of `data` that divided it; None where a record is damaged."""
    found = {key: link.data.get(key) for key in ("validation_split", "test_split")}
    are_whole = all(isinstance(one, int | float) and 0 <= one <= 1 for one in found.values())
    return found if are_whole else None


def data_identity(
    data: DataConfig, data_fingerprint: str, classes: Sequence[str] | None = None
) -> JsonObject:
    """Return what decides which examples there are, but for the seed.

    Args:
        data: the `data` section.
        data_fingerprint: of what its source holds.
        classes: their names in the order of the labels, once they are known: those of a section
            that names none count like the same names in the section.
    """
    keys = data.model_dump(mode="json", exclude={*NOT_OF_SPLITS, "inputs"})
    keys["classes"] = list(classes or ()) or keys["classes"]
    return {"fingerprint": data_fingerprint, **keys}


def remember(
    plan: Plan,
    step: Step,
    splits: Splits,
    data: DataSet,
    stored: StoredStep,
    store: Store,
    begins: StoredStep | None,
) -> Lineage:
    """Write where a finished step's artifact comes from, and return it.

    Args:
        plan: what was run.
        step: one of its steps.
        splits: how its data was divided.
        data: what the report says of its data.
        stored: the step, finished.
        store: where it is.
        begins: the run's baseline, with which a line may begin; None before it has finished.
    """
    lineage, kept = splits.lineage or Lineage(), list[Path]()
    if (held := stored.files.get(SPLITS)) is not None:
        link = Link(
            plan.recipe.name,
            data_identity(
                splits.data(plan.recipe.data), str(data.fingerprint), stored.result.data.classes
            ),
            splits.seed,
            held.stem,
        )
        lineage = lineage.and_(Lineage((link,)))
        kept.append(held)
    elif step.kind != BASELINE:  # some example could not be read: nobody can leave them out
        lineage = replace(lineage, outside=True)
    if lineage.origin is None and begins is not None:
        lineage = replace(lineage, origin=_origin_of(plan, splits, str(data.fingerprint), begins))
        kept.append(begins.files["scores"])
    artifact = stored.files["artifact"]
    place = lineage_path(store.root, identity(artifact))
    code = sorted({*code_of(plan), *_named(place)})
    with contextlib.suppress(OSError, ResourceError):
        for file in kept:
            store.keep(file)
        if step.kind == BASELINE:  # measuring a file says nothing of how it was trained
            known = files.read_mapping(place).get("artifacts")
            entry = known[0] if isinstance(known, list) and known else {}
        else:
            details = stored.result.details or Details()
            entry = to_plain(complete_usage(details, plan.recipe.name, data))
        entry = {**entry, "sha256": artifact.stem, "lineage": lineage.to_dict()}
        files.write_json(place, {"artifacts": [entry], "code": code})
    return lineage


def named_code(artifact: Path) -> set[str]:
    """Return the Python files that were named for the runs that made an artifact on this machine.

    It is the store that says it: what a run folder names may be anybody's.
    """
    return _named(lineage_path(cache_root(), identity(artifact)))


def _named(place: Path) -> set[str]:
    code = files.read_mapping(place).get("code")
    return {str(one) for one in code} if isinstance(code, list) else set()


def code_of(plan: Plan) -> set[str]:
    """Return the Python files that a recipe has run, data with its function, but no builder."""
    data = plan.recipe.data
    by_data = data.path if data.source == "python" else None
    coded = (one for one in (*(data.slices or ()), data.augment) if one is not None)
    functions = (one.file for one in coded)
    named = (plan.custom_objects, by_data, *functions, *plan.recipe.task.files())
    return {str(one) for one in named if one is not None}


def _origin_of(plan: Plan, splits: Splits, data_fingerprint: str, stored: StoredStep) -> LineOrigin:
    """Return the baseline that a line of runs begins with."""
    result = stored.result
    return LineOrigin(
        run=plan.recipe.name,
        stage=plan.baseline.name,
        artifact=identity(stored.files["artifact"]),
        scores=stored.files["scores"].name,
        tested_on=evaluated_split(plan, splits, data_fingerprint, result.data.classes),
        test_examples=result.splits.test_examples,
        size=result.size,
        memory=result.memory,
        metrics=result.metrics,
        latency=result.latency,
        examples=result.examples,
    )


def evaluated_split(
    plan: Plan, splits: Splits, data_fingerprint: str, classes: Sequence[str] | None
) -> SplitIdentity:
    """Return what decides the test examples of a run."""
    identity = data_identity(splits.data(plan.recipe.data), data_fingerprint, classes)
    return SplitIdentity(identity, splits.seed, splits.earlier)


def chain_of(plan: Plan, splits: Splits, data: DataSet, store: Store) -> Continuation | None:
    """Return what a run goes on from, None where its own baseline is the first of its line."""
    reference = plan.baseline.inputs["model"].reference
    origin = None if splits.lineage is None else splits.lineage.origin
    if origin is None or reference is None or not reference.trained:
        return None
    if identity(reference.path) == origin.artifact:
        return None
    fingerprint = str(data.fingerprint)
    paired = origin.tested_on == evaluated_split(plan, splits, fingerprint, data.classes)
    tests = (origin.test_examples, data.test_examples)
    same = paired if None in tests else tests[0] == tests[1]
    name = origin.scores if same and paired else None  # scores are paired by their order
    scores = files.read_mapping(store.kept(name)) if name else {}
    return Continuation(as_base(origin, Origin), scores_from_plain(scores), same)


def _lineage_of(plan: Plan, store: Store) -> tuple[Lineage | None, dict[str, Path]]:
    """Return the lineage of all trained models that a plan names, and where their splits are."""
    sources = [source for step in plan.steps for source in step.inputs.values()]
    references = [source.reference for source in sources if source.reference is not None]
    paths = dict.fromkeys(one.path for one in references if one.trained)
    found: Lineage | None = None
    places: dict[str, Path] = {}
    for path in paths:
        lineage, folder = _known(path)
        found = lineage if found is None else found.and_(lineage)
        names = [link.splits for link in lineage.links]
        places |= splits_files(names, store, folder / SPLITS)
    return found, places


def _known(path: Path) -> tuple[Lineage, Path]:
    """Return where a model's file comes from, and the run folder that it may be in."""
    read = (Lineage.of(entry.get("lineage")) for entry in record_entries(path))
    found = [lineage for lineage in reversed([*read]) if lineage is not None]
    # The cache also knows of later runs, but nothing where the file came without its record.
    known = next((one for one in found if one.links), next(iter(found), Lineage(outside=True)))
    return known, path.parent.parent


def splits_files(names: Iterable[str], store: Store, folder: Path) -> dict[str, Path]:
    """Return where the splits of these hashes are: in the store, or in a run folder."""
    found: dict[str, Path] = {}
    for name in names:
        for path in (store.kept(f"{name}.bin"), folder / f"{name}.bin"):
            if path.is_file() and files.sha256(path) == name:
                found.setdefault(name, path)
    return found
