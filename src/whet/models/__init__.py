"""Models: tokenizers, loading and saving in the Hugging Face layout, adapters, logprobs of given tokens."""
