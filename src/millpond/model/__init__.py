"""What exists: the words every other part of Millpond speaks. Standard library only, immutable values only."""
