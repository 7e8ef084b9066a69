"""Charts as SVG, and the pages that are made of them: use over time, and training curves."""
