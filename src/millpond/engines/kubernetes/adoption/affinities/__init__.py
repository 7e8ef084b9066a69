"""Where pods want to lie by the pods that lie there: affinities, topology spread, and what pods of a gang ask."""
