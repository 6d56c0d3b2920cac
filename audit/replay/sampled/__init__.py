"""References of cases too large to be computed whole: exact parts of the output, and a sketch of all of it."""
