"""The views: a story becomes a film, in simple and in full, with all their words and sizes."""
