#!/usr/bin/env bash
# torch-eager.sh CONFIG: PyTorch's training step on that configuration, eager; 77 where PyTorch is not.
exec "$(dirname "$0")/torch" eager "$@"
