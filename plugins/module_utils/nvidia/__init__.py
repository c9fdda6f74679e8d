"""NVIDIA GPUs on the node: driver, MIG, CDI, RDMA."""
