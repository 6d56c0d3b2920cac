"""Traces that can be given away: what replay needs, and no name, value or line of the program."""
