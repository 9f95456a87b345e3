"""Commands of their own file; `cli.py` registers them."""
