"""A policy that corrects itself: self-talk, SCoRe's kin, learning from text feedback."""
