"""A tape of a step, played on the device, on the CPU and in fp64 side by side."""
