"""Parts of a module whose activations are computed again."""
