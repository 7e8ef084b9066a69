"""How rarely and among what garbage is looked for: a look at all objects is a pause for all requests.

What is loaded at a start is left out, and so are the descriptions of all machines once they are made: of 5,000 nodes
with eight cards these are 190,000 objects, and 60 ms of each look. What is left out goes with its last
reference; only a circle among it would stay.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""So many new objects until garbage is looked for among them. After Python's 700, what a play of estimates or a burst
of jobs makes counts as old while it is in use, and leads to looks at all objects: half a second each for 10,000 jobs
that wait on 5,000 nodes. After 10,000 such a look is rare, and one at the new ones takes some milliseconds."""


def keep_what_is_loaded() -> None:
    """From here on garbage is looked for only among what is made later."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()
