#!/bin/bash
# Installs the build into a fresh prefix and builds and runs an outside project against it.
# install_and_use.sh CMAKE BUILD_FOLDER OUTSIDE_FOLDER SCRATCH_FOLDER BUILD_TYPE COMPILER
set -euo pipefail
cmake=$1 build=$2 outside=$3 scratch=$4 type=$5 compiler=$6

rm -rf "$scratch"
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch.install.log"
"$cmake" -S "$outside" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_BUILD_TYPE="$type" -DCMAKE_CXX_COMPILER="$compiler"
"$cmake" --build "$scratch/build"

# The installed data must do without the source tree.
SHARDPLAN_DATA="$scratch/prefix/share/shardplan" "$scratch/build/outside"
