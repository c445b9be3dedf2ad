"""The algorithms of the collectives, one module for each family."""
