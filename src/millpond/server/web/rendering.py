"""How pages are made: templates that escape all they show, in the languages of their readers, files named by hashes,
headers that keep others out."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from millpond.model.amounts import MIB_IN_GIB, memory_text, milli_text, pace_text
from millpond.server.auth.guard import PORTAL_FILES
from millpond.server.auth.roles import Caller
from millpond.server.catalogues import ENGLISH, LANGUAGES, TextCatalogue
from millpond.server.phrases.phrasebook import phrase_in
from millpond.server.version import VERSION
from millpond.server.web.charts.line_charts import number_text
from millpond.server.web.command_pages import COMMAND_PAGES, page_of
from millpond.server.wording import rounded_span

_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER: Final = "public, max-age=31536000, immutable"
LONGEST_SHOWN: Final = 300
"""Characters of a name, or of another word of users, that a page shows."""


PORTAL_TEXTS: Final = TextCatalogue("millpond.server.web", "portal")
"""What the templates say."""
FIXED_TEXTS: Final = TextCatalogue("millpond.server.web", "fixed")
"""Whole texts of the program's own tables: what fields of a job file mean, templates, verbs and objects of rights."""

_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC([+-]\d\d:\d\d)?")
"""An instant in a sentence of the server, as ``wording.local_time`` and ``zoned_times.instant_text`` write it."""
_LITERAL: Final = ("name", "lparen", "string", "rparen")


def words_in(language: str) -> Callable[..., Markup]:
    """What gives a template the words of a language for a text, with the values that it names."""
    known = PORTAL_TEXTS.translation(language).gettext
    return lambda text, **values: Markup(known(text)) % values


class LiteralTexts(Extension):
    """Has ``_('…')`` translated when a template is read: a long table says the same words in each of its rows."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The template's tokens, with the words in place of each such call; they are markup, as the call gives it."""
        words = cast(Callable[..., Markup], self.environment.globals["_"])
        tokens, place = list(stream), 0
        while place < len(tokens):
            token, found = tokens[place], tokens[place : place + len(_LITERAL)]
            if token.value == "_" and tuple(each.type for each in found) == _LITERAL:
                yield Token(token.lineno, "string", str(words(found[2].value)))
                yield Token(token.lineno, "pipe", "|")
                yield Token(token.lineno, "name", "safe")
                place += len(_LITERAL)
            else:
                yield token
                place += 1


@dataclass(frozen=True, slots=True)
class PageReader:
    """For whom a page is made.

    Attributes:
        caller: None: nobody has logged in.
        csrf: what requests of the page have to show beside the cookie.
        path, query: the address that they opened; the query without its question mark.
        may_submit: they may submit jobs.
        version: the number of the change feed before the page was made.
    """

    caller: Caller | None
    csrf: str = ""
    language: str = ENGLISH
    path: str = ""
    query: str = ""
    may_submit: bool = False
    version: int = 0


def show(template: str, visit: PageReader, status: int = 200, **content: Any) -> Response:
    """A page.

    Args:
        content: what the template shows, by name.
    """
    nonce = secrets.token_urlsafe(16)
    text = environment_in(visit.language).get_template(template).render(visit=visit, nonce=nonce, **content)
    return HTMLResponse(text, status, headers=_headers(nonce, visit.language))


def _headers(nonce: str, language: str) -> Mapping[str, str]:
    allowed = "connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; {allowed}"
    return {
        "Cache-Control": "no-store",
        "Content-Language": language,
        "Content-Security-Policy": policy,
        # No page of another window, not even of a job's program under this very name, reaches into this one.
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }


def static_file(digest: str, name: str) -> Response | None:
    """A file that pages consist of; None where there is none of this name and content."""
    known = _files().get(name)
    if known is None or known[0] != digest:
        return None
    return Response(known[1], media_type=_KINDS[name.rpartition(".")[2]], headers={"Cache-Control": _FOREVER})


@cache
def _files() -> dict[str, tuple[str, bytes]]:
    """All such files by name: each with the beginning of its hash."""
    contents = {file.name: file.read_bytes() for file in _files_in(files("millpond.server.web") / "static")}
    return {name: (hashlib.sha256(content).hexdigest()[:16], content) for name, content in contents.items()}


def _files_in(folder: Traversable) -> Iterator[Traversable]:
    """Those that browsers take, of this folder and of those in it: libraries, with their licences, have their own."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_in(entry)
        elif entry.name.rpartition(".")[2] in _KINDS:
            yield entry


def _address(name: str) -> str:
    """Where browsers find such a file, and may keep it for good."""
    return f"{PORTAL_FILES}{_files()[name][0]}/{name}"


@cache
def environment_in(language: str) -> Environment:
    """What renders the portal's templates in a language."""
    environment = Environment(
        loader=PackageLoader("millpond.server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # they are part of the program: no look at each file for each page
        extensions=[LiteralTexts],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = words_in(language)
    environment.globals.update(_=words, file=_address, languages=LANGUAGES, version=VERSION)
    environment.globals["commands"] = [(command, page, words(title)) for command, page, title in COMMAND_PAGES]
    environment.filters.update(
        cards=milli_text,
        memory=_memory,
        span=lambda seconds: phrase_in(language, rounded_span(seconds)),
        phrase=partial(phrase_in, language),
        fixed=FIXED_TEXTS.words(language),
        instant=_instant,
        short=_short,
        marked=partial(_marked, words),
        part=_part,
        pace=pace_text,
        number=number_text,
    )
    return environment


def _memory(mib: int) -> str:
    """To a tenth of a GiB: ``511.7 GiB``; of less than ten, exactly."""
    return memory_text(mib) if mib < 10 * MIB_IN_GIB else f"{round(mib / MIB_IN_GIB, 1):g} GiB"


def _instant(at: float | None, *, how: str = "at") -> str | Markup:
    """An instant, which the page's script shows in the reader's time zone.

    Args:
        how: ``at``: date and time; ``ago``: as a distance from now, kept up to date.
    """
    if at is None:
        return "\N{EN DASH}"
    moment = datetime.fromtimestamp(at, UTC)
    day, clock = f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}"
    return Markup(f'<time datetime="{day}T{clock}Z" data-how="{how}">{day} {clock} UTC</time>')


def _short(text: str) -> str:
    """A word of a user, cut where it is endless."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _marked(words: Callable[[str], Markup], text: str) -> Markup:
    """A text in which `commands and fields` stand between backticks, which a page shows as code.

    Commands that a page does are links to it. The script of pages does the same (``portal.js``). Instants in the text
    are shown as all others are.
    """
    parts = re.split("`([^`<>]+)`", str(escape(text)))
    return Markup("").join(
        _code(words, Markup(part)) if number % 2 else Markup(_INSTANT.sub(_named_instant, part))
        for number, part in enumerate(parts)
    )


def _named_instant(found: re.Match[str]) -> str:
    """An instant in a text, for the page's script; as it stands where there is no such day or hour."""
    day, clock, offset = found.groups()
    moment = f"{day}T{clock}{offset or 'Z'}"
    try:
        datetime.fromisoformat(moment)
    except ValueError:
        return found[0]
    return f'<time datetime="{moment}" data-how="at">{found[0]}</time>'


def _code(words: Callable[[str], Markup], text: Markup) -> Markup:
    if (page := page_of(text.unescape())) is None:
        return Markup("<code>{}</code>").format(text)
    address, title, named = page
    shown = Markup(" ").join([words(title), *named.split()])
    return Markup('<a href="{}" title="{}">{}</a>').format(address, text, shown)


def _part(amount: float, whole: float) -> float:
    """A part in percent, within 0 and 100."""
    return round(min(max(100 * amount / whole, 0), 100), 1) if whole > 0 else 0.0
