"""What `node_doctor` collects on a node: facts, not evaluated."""
