"""What to do next: the pure core. Events in, decisions out; no I/O, no clock, no randomness of its own."""

from millpond.compilation.finder import use_compiled

use_compiled()
