"""What several node programs use: one of each. Shipped with each program that imports it."""
