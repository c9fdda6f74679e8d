"""What a validation found, for people and for programs: table, JSON, JUnit, HTML. Pure: values in, text out."""
