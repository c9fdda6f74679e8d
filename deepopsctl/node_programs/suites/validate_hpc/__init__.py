"""HPL, STREAM, FFT and more of HPC Challenge through Slurm: on each idle node by itself, and on all together."""
