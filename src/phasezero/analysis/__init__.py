"""Feature statistics of trained networks (spectra, information, overlap, the sphere), and comparisons of runs."""
