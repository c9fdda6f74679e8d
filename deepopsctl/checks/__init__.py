"""One check of a validation, and the catalogue of all of them."""
