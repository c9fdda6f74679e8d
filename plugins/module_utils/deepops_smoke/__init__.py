"""The smoke suite: what runs on the submit host and on the nodes. Standard library only, Python 3.8 and later."""
