"""Painters: primitives become pixels, vectors or slides."""
