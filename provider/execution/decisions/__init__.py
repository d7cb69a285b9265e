"""Pure decision functions: values in, a decision out, no side effects. Times and ids are passed in."""
