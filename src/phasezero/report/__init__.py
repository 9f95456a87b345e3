"""Views of records and analyses: tables, figures, the HTML page, published numbers."""
