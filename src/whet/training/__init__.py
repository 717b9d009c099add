"""Training: rows to optimiser steps, the loop over phases, checkpoints and resume. It never asks which recipe runs."""
