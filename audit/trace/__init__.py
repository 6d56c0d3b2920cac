"""Live program to cases."""
