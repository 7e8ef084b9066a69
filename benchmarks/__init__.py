"""Programs that measure how fast Millpond is, and how good its decisions are."""
