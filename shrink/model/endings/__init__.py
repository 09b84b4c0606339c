"""What a model's outputs are, probabilities or logits, told from what its graph computes."""
