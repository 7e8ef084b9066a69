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


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_each_table_has_a_name_for_those_who_go_from_one_to_the_next_without_seeing_them(template: Path) -> None:
    text = template.read_text()
    for table in re.findall(r"<table\b[^\n]*?><", text):
        named = re.search(r'aria-label(?:ledby)?="([^"]+)"', table)
        assert named, table
        if "aria-labelledby" in table and "{{" not in named[1]:
            assert f'id="{named[1]}"' in text, table
