#!/usr/bin/env bash
# Installs what the features `cuda` and `emulate` of this crate are built with, from NVIDIA's own Python packages: no GPU, no
# driver, no root. For x86-64 Linux with Python 3 and pip.
#
#   install-toolkit.sh [--headers] [FOLDER]
#
#   --headers   only the headers that `emulate` needs (6 MB); else also the compiler (105 MB to fetch, 270 MB installed)
#   FOLDER      where to; default ~/.cache/lifelong-toolkit, which the build finds by itself. For another one set CUDA_HOME.
#
# Prints the folder. A second run with the same wishes finds everything there and is done.
set -euo pipefail

# CUDA 13.0: its PTX is read by every driver that knows Blackwell (580 and later).
headers=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85)
compiler=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88)

packages=("${headers[@]}" "${compiler[@]}")
folder=
for argument in "$@"; do
    case $argument in
        --headers) packages=("${headers[@]}") ;;
        --help | -h) sed -n '2,11p' "$0"; exit 0 ;;
        -*) echo "install-toolkit: unknown option $argument (there is --headers)" >&2; exit 2 ;;
        *) folder=$argument ;;
    esac
done
folder=${folder:-${XDG_CACHE_HOME:-$HOME/.cache}/lifelong-toolkit}
note=$folder/installed.txt

if [ -f "$note" ]; then
    missing=0
    for package in "${packages[@]}"; do grep -qxF "$package" "$note" || missing=1; done
    if [ $missing = 0 ]; then echo "$folder"; exit 0; fi
elif [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "install-toolkit: $folder is not empty and was not made by this script; name another folder" >&2
    exit 1
fi

mkdir -p "$(dirname "$folder")"
fresh=$(mktemp -d "$(dirname "$folder")/.lifelong-toolkit.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
# All in one call: the packages share a folder, and pip replaces it as a whole.
python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary=:all: \
    --target "$fresh/packages" "${packages[@]}" >&2
root=$fresh/packages/nvidia/cu13
[ -f "$root/include/cuda_fp16.h" ] || { echo "install-toolkit: the packages hold no headers" >&2; exit 1; }
if [ ${#packages[@]} -gt ${#headers[@]} ]; then
    # Proof before anything is replaced.
    printf '#include <cuda_bf16.h>\nextern "C" __global__ void one(float* x) { *x = 1.0f; }\n' >"$fresh/one.cu"
    "$root/bin/nvcc" -cubin -arch=sm_80 -o "$fresh/one.cubin" "$fresh/one.cu" >&2
fi
printf '%s\n' "${packages[@]}" >"$root/installed.txt"
rm -rf "$folder"
mv "$root" "$folder"
echo "$folder"
