"""Job files that were accepted with halves of surrogate pairs: nothing can send them, and today they are refused."""

from __future__ import annotations

import json
import re

import sqlalchemy as sa
from alembic import op

revision = "whole_characters"
down_revision = "images"
branch_labels = None
depends_on = None

_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_TABLES = (sa.table("jobs", sa.column("document", sa.Text)), sa.table("revisions", sa.column("document", sa.Text)))


def upgrade() -> None:
    """Put U+FFFD, which Unicode has for what is no character, in the place of each half."""
    connection = op.get_bind()
    for table in _TABLES:
        of_pairs = table.c.document.contains("\\ud", autoescape=True)
        for (text,) in connection.execute(sa.select(table.c.document).where(of_pairs).distinct()).all():
            mended = json.dumps(_mended(json.loads(text)))
            if mended != text:
                connection.execute(table.update().where(table.c.document == text).values(document=mended))


def downgrade() -> None:
    """Nothing knows any more what the halves were."""


def _mended(value: object) -> object:
    if isinstance(value, str):
        return _HALF.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value
