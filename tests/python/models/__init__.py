"""Models and helpers of the parity tests: the same program on stock CPU and on flex."""
