"""The GPU suite: on every node, can a job open its own GPUs and no others, and how fast are they (gpu_check)?"""
