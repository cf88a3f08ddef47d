"""The parts of PyTorch's internal test helpers that test suites of other libraries import."""
