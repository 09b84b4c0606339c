"""A signal inside one of pydantic's callbacks ends the command as it does anywhere else."""

from __future__ import annotations

import pytest
from pydantic import SerializerFunctionWrapHandler, model_serializer
from pydantic_core import PydanticSerializationError

from shrink.base.errors import Interrupted, Terminated
from shrink.base.fields import Config


class Inner(Config):
    @model_serializer(mode="wrap")
    def _stopped(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        raise RAISED[0]


class Outer(Config):
    inner: Inner = Inner()

    @model_serializer(mode="wrap")
    def _own(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return dict(handler(self))


RAISED: list[BaseException] = []


@pytest.mark.parametrize("stop", [Interrupted("stop"), Terminated("end"), KeyboardInterrupt()])
@pytest.mark.parametrize("section", [Inner(), Outer()])
def test_a_stop_inside_a_serializer_stays_what_it_is(section: Config, stop: BaseException) -> None:
    RAISED[:] = [stop]
    for dump in (section.model_dump, section.model_dump_json):
        with pytest.raises(type(stop)) as caught:
            dump()
        assert str(caught.value) == str(stop)


def test_an_error_inside_a_serializer_stays_pydantics() -> None:
    RAISED[:] = [OSError("no")]
    with pytest.raises(PydanticSerializationError, match="OSError: no"):
        Outer().model_dump()
