"""Critics: trained by RL, by pairs, by imitation of what helped."""
