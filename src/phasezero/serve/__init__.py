"""Serve a model over HTTP, with a page to try and extend it."""
