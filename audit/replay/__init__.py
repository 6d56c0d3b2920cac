"""Cases to measurements."""
