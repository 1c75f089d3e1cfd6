"""What a person sees in a terminal."""
