"""Between the messages of the contract and the values of the domain."""
