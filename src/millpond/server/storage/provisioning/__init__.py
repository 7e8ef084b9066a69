"""What jobs need on a machine before they can start there: images, and near copies of far data."""
