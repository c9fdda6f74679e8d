"""What people call on nodes: users in their jobs and at their prompts."""
