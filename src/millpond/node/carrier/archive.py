"""The carrier as one file that Python runs, made of its modules: the server puts it into every secret.

So what runs in a pod is of the release that started it, and images need nothing of Millpond.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
MODULES: Final = (
    "model/folders.py",
    "node/host/folder_trees.py",
    "node/task/layout.py",
    *(f"node/carrier/{name}.py" for name in ("order", "connection", "incoming", "outgoing", "program")),
)
_START: Final = "from millpond.node.carrier.program import run\n\nrun()\n"
_TIME: Final = (1980, 1, 1, 0, 0, 0)


@cache
def carrier_archive() -> bytes:
    """The file, the same for the same release."""
    packages = {f"{folder}/__init__.py" for module in MODULES for folder in Path("millpond", module).parents} - {
        "./__init__.py"
    }
    texts = {
        "__main__.py": _START,
        **dict.fromkeys(sorted(packages), ""),
        **{f"millpond/{module}": (_ROOT / module).read_text() for module in MODULES},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), text, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()
