"""Facts about GPUs, kernels, messages and public issues: data files with sources, and typed loaders. No torch."""
