"""The suite `ha`: the first controller is killed, frozen and cut off, and jobs continue."""
