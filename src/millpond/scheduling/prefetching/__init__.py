"""What waiting jobs need is fetched to nodes before they start there."""
