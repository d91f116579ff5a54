"""The wire formats agents speak."""
