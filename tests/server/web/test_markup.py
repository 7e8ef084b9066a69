"""What templates may not have in them."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import millpond.server.web

TEMPLATES = sorted((Path(str(files(millpond.server.web))) / "templates").rglob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_has_no_code_that_htmx_would_have_to_evaluate(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\bhx-on\b|[\"' ](?:js|javascript):|hx-trigger=\"[^\"]*\[", text)
