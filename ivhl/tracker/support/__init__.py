"""What works in each cell, what is known to fail there, and tables of both."""
