"""In the place of setuptools while pip fetches sources, of which nothing is to be run."""
