"""GPUs: models, notation, MIG, gres, drivers, CUDA and what belongs to them."""
