"""The simulated device: a PyTorch backend in Python that picks ops as HIP does, rounds honestly, fails on order."""
