"""Data sets: the catalog, the class streams and the loaders. Importing this package registers the data sets."""

from phasezero.data import cifar100, folder, glyphs, imagenet  # noqa: F401
