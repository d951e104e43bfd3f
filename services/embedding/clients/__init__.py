"""The engines that compute vectors, one module each."""
