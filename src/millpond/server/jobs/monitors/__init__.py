"""What is watched while jobs wait and run: deadlines, idle cards, waits, and what users are told of them."""
