"""Import records of other machines: find them, check them, merge them into the results."""
