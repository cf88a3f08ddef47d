"""Parts of the flow for graphs."""
