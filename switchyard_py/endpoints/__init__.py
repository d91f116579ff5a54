"""What is served over HTTP besides the model calls."""
