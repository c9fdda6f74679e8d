"""The storage suite: what runs on the submit host, inside jobs and on nodes. Standard library, Python 3.8 and later."""
