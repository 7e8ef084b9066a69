"""Whom to ask to leave: the roster of running work, the cheapest victims, and plans proved before anyone is asked."""
