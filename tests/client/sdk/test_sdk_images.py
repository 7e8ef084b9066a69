"""Steps of what takes long, as a client follows them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.client.sdk.resources.images import ImagesClient
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.api.base import ErrorBody
from millpond.specs.api.jobs.images import ImageInfo, ImageStep

TORCH = ImageInfo(
    name="torch",
    tag="2.4",
    reference="torch:2.4",
    origin="docker.io/pytorch/pytorch:2.4",
    digest="sha256:0",
    size=1,
    user="max",
    group="vision",
    visibility="group",
    description="",
    created_at=1.0,
)


def images(*steps: ImageStep) -> ImagesClient:
    """A catalogue whose server answers so, in pieces that keep to no line."""
    text = "".join(step.model_dump_json() + "\n" for step in steps).encode()

    def post(path: str, body: Any, silence_s: float) -> Iterator[bytes]:
        return (text[at : at + 7] for at in range(0, len(text), 7))

    return ImagesClient(SimpleNamespace(ask=None, post=post), None)  # type: ignore[arg-type]


def test_lines_are_told_signs_of_life_are_not_and_the_last_step_is_the_image() -> None:
    told: list[str] = []
    catalogue = images(ImageStep(line="STEP 1"), ImageStep(), ImageStep(line="STEP 2"), ImageStep(image=TORCH))
    assert catalogue.pull("torch", "2.4", told.append) == TORCH
    assert told == ["STEP 1", "STEP 2"]


def test_an_error_at_the_end_is_what_it_would_be_as_an_answer() -> None:
    error = ErrorBody(cause="there is no Containerfile in the folder", code="invalid", remedy="write one")
    with pytest.raises(InvalidInputError, match="no Containerfile") as caught:
        images(ImageStep(error=error)).add("a", "1", "b", print)
    assert caught.value.remedy == "write one"


def test_a_server_that_goes_before_the_end_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="before the image was there"):
        images(ImageStep(line="STEP 1")).pull("torch", "2.4", print)
