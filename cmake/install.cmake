# What a wheel holds beside the .py files: both libraries, the module, stubs, and the shipped kernels.
