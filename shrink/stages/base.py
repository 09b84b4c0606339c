"""The contract of a stage: a light configuration here, a heavy `run` beside it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from shrink.base.fields import Config
from shrink.base.foreign import JsonObject
from shrink.model.reference import Form

StageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class StageConfig(Config):
    """What a recipe says of one stage; every stage's own configuration derives from it.

    The heavy half is `run(config, context) -> StageResult` in the module `run` beside the
    configuration's, imported in the worker only.
    """

    kind: ClassVar[str]
    """The stage's key in a recipe and the folder of its code."""
    accepts: ClassVar[tuple[Form, ...]] = ("keras",)
    """The forms of model that the stage can start from."""
    follows: ClassVar[tuple[Form, ...]] = ("keras",)
    """The forms of an earlier stage's artifact that it can go on from."""
    produces: ClassVar[Form] = "keras"
    """The form of its artifact."""
    preserves: ClassVar[tuple[str, ...]] = ()
    """What of its outcome every later stage preserves, such as `sparsity`."""
    breaks: ClassVar[tuple[str, ...]] = ()
    """What it cannot preserve, so that no stage with that outcome may come before."""

    name: StageName | None = None
    """Name of the stage; by default its kind, with a number if the kind occurs again."""
    from_: StageName | None = Field(default=None, alias="from")
    """The earlier stage to start from; by default the one before."""
    training: JsonObject | None = None
    """Overrides of the recipe's `training` section for this stage."""

    @property
    def passes(self) -> int:
        """Passes over the training examples, as far as the recipe says; 0 where none trains."""
        return int(getattr(self, "epochs", 0))

    @property
    def reads_training(self) -> bool:
        """Whether more of `training` than its seed decides the outcome: by default if it trains."""
        return bool(self.passes)

    @property
    def needs_examples(self) -> str | None:
        """What the stage does with examples, after "it"; None where it needs none."""
        return "trains on them"

    @property
    def needs_targets(self) -> str | None:
        """Why examples without targets do not do, after "it"; None where they do."""
        return self.needs_examples

    @property
    def needs_classes(self) -> bool:
        """Whether the stage measures how many examples are classified rightly."""
        return False

    @property
    def keeps_layers(self) -> bool:
        """Whether its model has the layers, of the same sizes, that it starts from."""
        return False

    @property
    def needs_micro(self) -> bool:
        """Whether TFLite Micro has to run the model."""
        return False

    @property
    def removes_blocks(self) -> int:
        """How many blocks of layers it removes."""
        return 0

    def check_installed(self) -> None:
        """Raise `ResourceError` where a package is missing that only this configuration needs.

        Called before anything is computed; by default nothing is needed.
        """

    def preserved(self) -> tuple[str, ...]:
        """Return what this configuration makes later stages keep; by default `preserves`."""
        return self.preserves
