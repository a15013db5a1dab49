#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and that are missing; not as root, names them.
# Usage: system_packages.sh PYTHON
set -euo pipefail
python=$1
name=$(basename "$python")  # Debian names its packages so

needed=()  # nothing goes without
wanted=()  # Highway would be downloaded, the C++ tests left out, every build started from nothing
command -v g++ > /dev/null || needed+=(g++)
command -v "$python" > /dev/null || needed+=("$name")
"$python" -c 'import ensurepip, venv' 2> /dev/null || needed+=("$name-venv")
"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null ||
  needed+=("$name-dev")
test -e /usr/include/hwy/highway.h || wanted+=(libhwy-dev)
test -e /usr/include/gtest/gtest.h || wanted+=(libgtest-dev)
command -v ccache > /dev/null || wanted+=(ccache)

packages=("${needed[@]}" "${wanted[@]}")
((${#packages[@]})) || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
  exit 0
fi
echo "Missing on this system: ${packages[*]}. On Debian and Ubuntu: sudo apt-get install ${packages[*]}" >&2
((${#needed[@]} == 0))
