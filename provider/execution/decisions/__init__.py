"""What is decided, and nothing done: values in, a decision out; times and ids are passed in."""
