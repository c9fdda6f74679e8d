"""`deepops-gpumetrics`: a node's GPUs for Prometheus, by nvitop-exporter's library; Python 3.9 or later."""
