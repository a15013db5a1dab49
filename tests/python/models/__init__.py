"""Models that the tests run on stock CPU and on flex."""
