"""What every stream and batch is made of, below inputs, operations and state."""
