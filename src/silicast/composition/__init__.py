"""Layer 3: from kernels to a model's step: device, host, communication, memory and power."""
