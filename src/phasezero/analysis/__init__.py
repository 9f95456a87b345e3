"""Looking at what a trained network has learned: spectra, information, overlap, the sphere; comparisons of runs."""
