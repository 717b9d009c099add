"""A policy that answers alone: policy gradients, NFT, imitation."""
