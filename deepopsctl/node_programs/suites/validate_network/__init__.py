"""The network between compute nodes: latency and bandwidth of pairs, ports next to the others, the fabric's cables."""
