"""The paper's tables and figures: what to run, in which order, and what to show."""
