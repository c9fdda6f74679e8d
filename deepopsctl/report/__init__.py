"""Reports of a validation: table, JSON, JUnit, HTML. Pure: values in, text out."""
