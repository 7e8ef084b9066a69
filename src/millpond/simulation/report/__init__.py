"""One self-contained HTML page that compares policies: numbers, curves, and who ran where."""
