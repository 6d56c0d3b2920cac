"""Evidence gathered beside the op."""
