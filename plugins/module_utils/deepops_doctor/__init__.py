"""What `node_doctor` looks at on a node: raw facts, no judgement."""
