"""Records of runs and their views: metrics, tables, figures, published numbers."""
