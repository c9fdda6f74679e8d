"""The suite `environment` of `validate`: whether users find on the nodes what they were promised."""
