"""How it looks: the film, its painters, the exports and the pages."""
