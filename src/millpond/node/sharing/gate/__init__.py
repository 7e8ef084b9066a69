"""The agent's side of the gate: builds the library that is loaded into tasks, and keeps the files that rule it."""
