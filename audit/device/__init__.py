"""Where cases are replayed: HIP and CUDA through one code path, the simulated device, the CPU reference."""
