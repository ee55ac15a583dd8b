#!/usr/bin/env bash
# torch-compiled.sh CONFIG: PyTorch's training step on that configuration, compile; 77 where PyTorch is not.
exec "$(dirname "$0")/torch" compile "$@"
