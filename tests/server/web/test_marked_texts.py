"""Texts of pages: in the reader's language, code between backticks, and whatever users wrote as text."""

from __future__ import annotations

import re

import pytest

from millpond.server.web.command_pages import COMMAND_PAGES
from millpond.server.web.portal import portal_routes
from millpond.server.web.rendering import PORTAL_TEXTS, environment_in
from millpond.specs.zoned_times import instant_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see `pond why JOB`, or `gpus`", "see <code>pond why JOB</code>, or <code>gpus</code>"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("</code><script>`", "&lt;/code&gt;&lt;script&gt;`"),
        ("one ` alone", "one ` alone"),
    ],
)
def test_commands_in_a_text_are_shown_as_code(text: str, shown: str) -> None:
    assert environment_in("en").from_string("{{ text|marked }}").render(text=text) == shown


@pytest.mark.parametrize(
    ("instant", "moment"),
    [
        (instant_text(1_764_500_400.0), "2025-11-30T11:00:00Z"),
        ("2026-11-22 08:00 UTC+01:00", "2026-11-22T08:00+01:00"),
        ("2026-11-22 08:00 UTC", "2026-11-22T08:00Z"),
    ],
)
def test_instants_in_a_text_are_left_to_the_page_which_knows_the_readers_time_zone(instant: str, moment: str) -> None:
    shown = environment_in("en").from_string("{{ text|marked }}").render(text=f"closed until {instant}: <b>")
    assert shown == f'closed until <time datetime="{moment}" data-how="at">{instant}</time>: &lt;b&gt;'


@pytest.mark.parametrize("text", ["2026-13-41 08:00 UTC", "2026-11-22 25:00 UTC", "2026-11-22 08:00"])
def test_what_is_no_instant_stays_text(text: str) -> None:
    assert environment_in("en").from_string("{{ text|marked }}").render(text=text) == text


@pytest.mark.parametrize(
    ("command", "address", "title"),
    [
        ("pond stop a-1.0", "/portal/jobs/a-1.0", "Job a-1.0"),
        ("pond clone a-1 --set priority=low", "/portal/submit?from=a-1", "Clone a-1"),
        ("pond ps --all", "/portal/jobs?all=true", "Jobs"),
        ("pond queue show a&b/c", "/portal/queues/a%26b%2Fc", "Queue a&amp;b/c"),
    ],
)
def test_commands_that_a_page_does_lead_there(command: str, address: str, title: str) -> None:
    shown = environment_in("en").from_string("{{ text|marked }}").render(text=f"see `{command}`")
    assert shown == f'see <a href="{address}" title="{command.replace("&", "&amp;")}">{title}</a>'


def test_each_page_in_place_of_a_command_is_there_and_has_a_title_in_each_language() -> None:
    pages = {re.sub(r"\{\w+\}", "", getattr(route, "path", "")) for route in portal_routes()}
    titles = PORTAL_TEXTS.texts("zh-CN")
    for command, address, title in COMMAND_PAGES:
        assert address.partition("?")[0] in pages, command
        assert title in titles


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_texts_are_in_the_readers_language_and_values_in_them_stay_text(language: str) -> None:
    words = PORTAL_TEXTS.words(language)
    template = "<b>{{ _('Jobs') }}</b> {{ _('Members of %(job)s', job=name) }} {{ {'a': _('Log in')}[key] ~ name }}"
    shown = environment_in(language).from_string(template).render(name="<i>", key="a")
    assert (
        shown
        == f"<b>{words('Jobs')}</b> {words('Members of %(job)s') % {'job': '&lt;i&gt;'}} {words('Log in')}&lt;i&gt;"
    )
