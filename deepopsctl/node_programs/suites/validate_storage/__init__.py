"""The suite `validate storage`: are mounts as declared, do nodes see each other's files, how fast are they."""
