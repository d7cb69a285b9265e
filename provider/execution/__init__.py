"""Carrying a plan out. `decisions` knows nothing of the rest; the other folders stand on the modules beside them."""
