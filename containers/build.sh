#!/usr/bin/env bash
# build.sh SOURCE ENVIRONMENT: what the Dockerfile runs; it works without a container engine, too.
# TORCH_INDEX: address of an index with PyTorch's builds for CPUs; without it PyPI's build is installed.
set -euo pipefail
source=$1 environment=$2
python3 -m venv "$environment"
python="$environment/bin/python"
lock="$source/locks/py$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt"
wheels=$(mktemp -d)
"$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
if [ -n "${TORCH_INDEX:-}" ]; then
  "$python" -m pip --disable-pip-version-check install --quiet --index-url "$TORCH_INDEX" \
    "$(grep -o '^torch==[0-9.]*' "$lock")" "$(grep -o '^torchvision==[0-9.]*' "$lock")"
fi
"$python" "$source/locks/install.py" --wheel "$(echo "$wheels"/driftline-*.whl)"
"$python" -m compileall -q -j 0 "$environment/lib" > /dev/null || true  # some packages ship files of another Python
rm -r "$wheels"
"$environment/bin/driftline" --version
