"""The weight sync: a pure machine that decides, and edges that carry out what it decides."""
