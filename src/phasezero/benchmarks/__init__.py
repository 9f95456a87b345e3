"""How fast things are: the published way beside ours."""
