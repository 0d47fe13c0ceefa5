#!/usr/bin/env bash
# Install the real SGLang for a machine without a GPU: install.sh VENV. A minute or two and 1.7 GB; needs Python 3.11.
# An existing, complete VENV is left alone. Some pinned packages of SGLang exist for CUDA only: they are left out here
# (--no-deps), and stubs/ stands in for those that must be importable.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
venv="${1:?usage: install.sh VENV}"
wanted="$(cat "$here/install.sh" "$here/requirements.txt" | sha256sum)"
if [ "$(cat "$venv/.complete" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
python="${PYTHON:-$(command -v python3.11 || true)}"
if [ -z "$python" ]; then
    echo "SGLang 0.5.23 on CPU was tried on Python 3.11 only, and there is no python3.11 here: name one, PYTHON=... $0" >&2
    exit 1
fi
rm -rf "$venv"
"$python" -m venv "$venv"
install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }
install torch==2.13.0
install --no-deps sglang==0.5.23 compressed-tensors==0.18.0 gguf==0.19.0 xgrammar==0.2.7
install --no-deps -r "$here/requirements.txt"
echo "$wanted" > "$venv/.complete"
