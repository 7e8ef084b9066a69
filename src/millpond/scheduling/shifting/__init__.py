"""Jobs that may start later than they could, and are held back for hours in which energy is cheaper or cleaner."""
